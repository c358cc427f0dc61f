/*
 * A store of lists of words and of the rows of PMNet's sessions. Each batch is appended to one journal with one write
 * and one sync. So requests and rows become durable together, or neither does. Exactly once needs no more than that.
 */
#ifndef STORE_H
#define STORE_H

#include <pmnet.h>

struct store {
    int file;
    /* The block that is being filled: room for its head, and its body. */
    uint8_t *block;
    size_t len, room;
    /* The rows and the floor that recovery has found. */
    uint8_t *rows;
    size_t rows_count;
    uint32_t floor;
    struct list *lists;
};

/* Opens or creates the journal at `path` and applies its blocks. Returns 0, or -1 and errno. */
int store_open(struct store *store, const char *path);

/* Whether a request changes the store: "push LIST WORD" does, "get LIST" does not. */
int store_changes(const uint8_t *bytes, size_t len);

/* Adds a request and its row to the block. Nothing is applied yet. */
void store_log(struct store *store, const PMNet_request *request);

/* Makes the block durable. Returns 0, or -1 and errno. After an error only a new store_open shows what is durable. */
int store_commit(struct store *store);

/* Executes a request. The response is valid until the next call. */
const char *store_execute(struct store *store, const uint8_t *bytes, size_t len);

#endif
