/*
 * The journal is a sequence of blocks. A block is magic, length of the body, check of the body (4 bytes each, in host
 * byte order), and the body. A body is a sequence of entries: `struct entry`, evicted keys, request. A block that fails
 * its check was torn by a crash. Recovery truncates the journal there; no request in it was acknowledged.
 *
 * This is an example: the journal only grows, rows and lists are searched linearly, and the check is a simple one.
 */
#define _POSIX_C_SOURCE 200809L
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x31545351u
#define HEAD_BYTES 12

struct entry {
    uint32_t floor;
    uint32_t evicted;
    uint32_t len;
    uint8_t row[PMNET_ROW_BYTES];
};

struct list {
    struct list *next;
    char *name;
    char *words;
    size_t len, count;
};

static void *grown(void *memory, size_t len) {
    memory = realloc(memory, len > 0 ? len : 1);
    if (memory == NULL) {
        perror("memory");
        exit(1);
    }
    return memory;
}

/* FNV-1a. */
static uint32_t check(const uint8_t *bytes, size_t len) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < len; i++) hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

static void append(struct store *store, const void *bytes, size_t len) {
    if (len == 0) return;
    if (store->len + len > store->room) {
        store->room = 2 * (store->len + len);
        store->block = grown(store->block, store->room);
    }
    memcpy(store->block + store->len, bytes, len);
    store->len += len;
}

int store_changes(const uint8_t *bytes, size_t len) {
    return len >= 5 && memcmp(bytes, "push ", 5) == 0;
}

void store_log(struct store *store, const PMNet_request *request) {
    struct entry entry = {request->floor, (uint32_t)request->evicted_count, (uint32_t)request->len, {0}};
    memcpy(entry.row, request->row, PMNET_ROW_BYTES);
    append(store, &entry, sizeof entry);
    append(store, request->evicted, request->evicted_count * PMNET_KEY_BYTES);
    append(store, request->bytes, request->len);
}

static int write_all(int file, const uint8_t *bytes, size_t len) {
    while (len > 0) {
        ssize_t done = write(file, bytes, len);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -1;
        bytes += done;
        len -= (size_t)done;
    }
    return 0;
}

int store_commit(struct store *store) {
    uint32_t len = (uint32_t)(store->len - HEAD_BYTES);
    if (len == 0) return 0;
    uint32_t head[3] = {MAGIC, len, check(store->block + HEAD_BYTES, len)};
    memcpy(store->block, head, HEAD_BYTES);
    if (write_all(store->file, store->block, store->len) != 0 || fdatasync(store->file) != 0) return -1;
    store->len = HEAD_BYTES;
    return 0;
}

static struct list *find(struct store *store, const char *name) {
    for (struct list *list = store->lists; list != NULL; list = list->next)
        if (strcmp(list->name, name) == 0) return list;
    return NULL;
}

static struct list *find_or_make(struct store *store, const char *name) {
    struct list *list = find(store, name);
    if (list != NULL) return list;
    list = grown(NULL, sizeof *list);
    *list = (struct list){store->lists, strcpy(grown(NULL, strlen(name) + 1), name), grown(NULL, 1), 0, 0};
    list->words[0] = '\0';
    store->lists = list;
    return list;
}

static void push(struct list *list, const char *word) {
    size_t len = strlen(word);
    list->words = grown(list->words, list->len + len + 2);
    list->len += (size_t)sprintf(list->words + list->len, list->len > 0 ? " %s" : "%s", word);
    list->count++;
}

const char *store_execute(struct store *store, const uint8_t *bytes, size_t len) {
    static char text[512], number[32];
    char *words[3] = {"", "", ""}, *saved = NULL;
    if (len >= sizeof text) return "too long";
    memcpy(text, bytes, len);
    text[len] = '\0';
    char *word = strtok_r(text, " ", &saved);
    for (int i = 0; i < 3 && word != NULL; i++, word = strtok_r(NULL, " ", &saved)) words[i] = word;
    if (strcmp(words[0], "get") == 0) {
        struct list *list = find(store, words[1]);
        return list != NULL ? list->words : "";
    }
    if (strcmp(words[0], "push") != 0) return "what?";
    struct list *list = find_or_make(store, words[1]);
    push(list, words[2]);
    sprintf(number, "%zu", list->count);
    return number;
}

/* A row contains its session's key: the number at 2, address and port at 4. A key has the number at its end. */
static int is_row_of(const uint8_t *row, const uint8_t *key) {
    return memcmp(row + 4, key, 18) == 0 && memcmp(row + 2, key + 18, 2) == 0;
}

static void delete_row(struct store *store, const uint8_t *key) {
    for (size_t i = 0; i < store->rows_count; i++) {
        uint8_t *row = store->rows + i * PMNET_ROW_BYTES;
        if (!is_row_of(row, key)) continue;
        store->rows_count--;
        memmove(row, store->rows + store->rows_count * PMNET_ROW_BYTES, PMNET_ROW_BYTES);
        return;
    }
}

static void replace_row(struct store *store, const uint8_t *row) {
    uint8_t key[PMNET_KEY_BYTES];
    memcpy(key, row + 4, 18);
    memcpy(key + 18, row + 2, 2);
    delete_row(store, key);
    store->rows = grown(store->rows, (store->rows_count + 1) * PMNET_ROW_BYTES);
    memcpy(store->rows + store->rows_count * PMNET_ROW_BYTES, row, PMNET_ROW_BYTES);
    store->rows_count++;
}

static void replay(struct store *store, const uint8_t *body, size_t len) {
    for (size_t at = 0; at < len;) {
        struct entry entry;
        memcpy(&entry, body + at, sizeof entry);
        at += sizeof entry;
        store->floor = entry.floor;
        for (uint32_t i = 0; i < entry.evicted; i++, at += PMNET_KEY_BYTES) delete_row(store, body + at);
        replace_row(store, entry.row);
        if (entry.len > 0) store_execute(store, body + at, entry.len);
        at += entry.len;
    }
}

/* Applies the valid blocks and returns their length. */
static size_t recover(struct store *store, const uint8_t *bytes, size_t len) {
    size_t at = 0;
    while (len - at >= HEAD_BYTES) {
        uint32_t head[3];
        memcpy(head, bytes + at, HEAD_BYTES);
        const uint8_t *body = bytes + at + HEAD_BYTES;
        if (head[0] != MAGIC || head[1] > len - at - HEAD_BYTES || head[2] != check(body, head[1])) break;
        replay(store, body, head[1]);
        at += HEAD_BYTES + head[1];
    }
    return at;
}

static int read_all(int file, uint8_t *bytes, size_t len) {
    while (len > 0) {
        ssize_t done = read(file, bytes, len);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return -1;
        bytes += done;
        len -= (size_t)done;
    }
    return 0;
}

/* A new file survives a crash only if its directory is synced, too. */
static int sync_directory(const char *path) {
    const char *slash = strrchr(path, '/');
    char *directory = grown(NULL, strlen(path) + 2);
    strcpy(directory, slash != NULL ? path : ".");
    if (slash != NULL) directory[slash == path ? 1 : slash - path] = '\0';
    int file = open(directory, O_RDONLY);
    int done = file < 0 ? -1 : fsync(file);
    if (file >= 0) close(file);
    free(directory);
    return done;
}

int store_open(struct store *store, const char *path) {
    struct stat stat;
    memset(store, 0, sizeof *store);
    append(store, (uint8_t[HEAD_BYTES]){0}, HEAD_BYTES);
    store->file = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
    if (store->file < 0 || fstat(store->file, &stat) != 0) return -1;
    size_t len = (size_t)stat.st_size;
    uint8_t *bytes = grown(NULL, len);
    if (read_all(store->file, bytes, len) != 0) return -1;
    size_t good = recover(store, bytes, len);
    free(bytes);
    if (good < len && ftruncate(store->file, (off_t)good) != 0) return -1;
    return fsync(store->file) != 0 ? -1 : sync_directory(path);
}
