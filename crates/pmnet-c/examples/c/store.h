/*
 * A store of lists of words, with the rows of PMNet's sessions: one journal, to which each batch is appended with one
 * write and one sync. So requests and rows are durable together, or neither is: that is all that exactly once needs.
 */
#ifndef STORE_H
#define STORE_H

#include <pmnet.h>

struct store {
    int file;
    /* The block that is being filled, behind its head. */
    uint8_t *block;
    size_t len, room;
    /* What recovery found: rows, one behind the other, and the floor. */
    uint8_t *rows;
    size_t rows_count;
    uint32_t floor;
    struct list *lists;
};

/* Opens the journal at `path`, makes one if there is none, and applies what is in it. 0, or -1 and errno. */
int store_open(struct store *store, const char *path);

/* Whether a request changes the store: "push LIST WORD" does, "get LIST" does not. */
int store_changes(const uint8_t *bytes, size_t len);

/* Adds a request and its row to the block. Nothing is applied yet. */
void store_log(struct store *store, const PMNet_request *request);

/* Makes the block durable. 0, or -1 and errno: what is durable then is known only to a new store_open. */
int store_commit(struct store *store);

/* Executes a request; what it responds belongs to the store until the next one. */
const char *store_execute(struct store *store, const uint8_t *bytes, size_t len);

#endif
