// writer DIR ACKS SEED WHEN: writes files in DIR until the file ACKS.stop is there, and notes in the file ACKS what was
// acknowledged: when a call has returned (WHEN is `returned`), or with the next fsync (`synced`).
//
// Everything that it writes carries its number and a checksum, so that a reader needs nothing but the notes:
//   log      records of 256 bytes, appended:                               L <number of records>
//   slots    blocks of 4096 bytes, written over again and again:           S <slot> <number>
//   name <k> files that are written beside, synced and renamed over:       R <k> <number>
// An error ends it with exit code 3: `<call>: errno <number>`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD = 256, RECORDS_MAX = 3000, SLOT = 4096, SLOTS = 16, NAMES = 6, PART = 3000, PAUSE_US = 50 };

static uint64_t seed;
static int acks, returned;
static char stop[4096];

static uint64_t below(uint64_t end) {
    static uint64_t state;
    if (!state) state = seed * 0x9e3779b97f4a7c15u | 1;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 20) % end;
}

static int failed(const char *call) {
    fprintf(stderr, "%s: errno %d\n", call, errno);
    return 3;
}

static void note(const char *line) {
    size_t len = strlen(line);
    if (write(acks, line, len) != (ssize_t)len) _exit(4);
}

// Number, seed, length, bytes that follow from these, and the sum of all of them (FNV-1a).
static void fill(unsigned char *bytes, size_t len, uint64_t number) {
    uint64_t words[3] = {number, seed, len}, sum = 0xcbf29ce484222325u;
    memcpy(bytes, words, sizeof words);
    for (size_t at = sizeof words; at < len - 8; at++) bytes[at] = (unsigned char)(number * 31 + seed * 7 + at * 13);
    for (size_t at = 0; at < len - 8; at++) sum = (sum ^ bytes[at]) * 0x100000001b3u;
    memcpy(bytes + len - 8, &sum, 8);
}

static int append(int fd) {
    static uint64_t records, synced;
    unsigned char bytes[RECORD];
    char line[64];
    if (records == RECORDS_MAX) return 0;
    fill(bytes, RECORD, records);
    if (write(fd, bytes, RECORD) != RECORD) return failed("write");
    records++;
    int syncs = below(4) == 0;
    if (syncs && fsync(fd)) return failed("fsync");
    if (syncs) synced = records;
    snprintf(line, sizeof line, "L %llu\n", (unsigned long long)(returned ? records : synced));
    note(line);
    return 0;
}

static int write_slot(int fd, uint64_t number) {
    static unsigned char bytes[SLOT];
    char line[64];
    uint64_t slot = below(SLOTS);
    fill(bytes, SLOT, number);
    if (pwrite(fd, bytes, SLOT, slot * SLOT) != SLOT) return failed("pwrite");
    int syncs = !returned || below(4) == 0;
    if (syncs && fdatasync(fd)) return failed("fdatasync");
    snprintf(line, sizeof line, "S %llu %llu\n", (unsigned long long)slot, (unsigned long long)number);
    note(line);
    return 0;
}

static int replace(int dir, uint64_t number) {
    static unsigned char bytes[20 * PART];
    char name[32], line[64];
    uint64_t k = below(NAMES);
    size_t len = 100 + below(sizeof bytes - 100);
    fill(bytes, len, number);
    int fd = openat(dir, "beside", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return failed("open");
    // The kernel may divide a write at the end of a page.
    for (size_t at = 0; at < len;) {
        ssize_t written = write(fd, bytes + at, len - at < PART ? len - at : PART);
        if (written <= 0) return failed("write beside");
        at += written;
    }
    if (fsync(fd)) return failed("fsync beside");
    close(fd);
    snprintf(name, sizeof name, "name %llu", (unsigned long long)k);
    if (renameat(dir, "beside", dir, name)) return failed("rename");
    int syncs = !returned || below(2);
    if (syncs && fsync(dir)) return failed("fsync of the directory");
    snprintf(line, sizeof line, "R %llu %llu\n", (unsigned long long)k, (unsigned long long)number);
    note(line);
    return 0;
}

int main(int count, char **arguments) {
    if (count != 5) return 9;
    seed = strtoull(arguments[3], 0, 10);
    returned = !strcmp(arguments[4], "returned");
    snprintf(stop, sizeof stop, "%s.stop", arguments[2]);
    acks = open(arguments[2], O_WRONLY | O_CREAT | O_APPEND, 0600);
    int dir = open(arguments[1], O_RDONLY | O_DIRECTORY);
    if (acks < 0 || dir < 0) return failed("open the directory");
    int log = openat(dir, "log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    int slots = openat(dir, "slots", O_RDWR | O_CREAT, 0600);
    if (log < 0 || slots < 0) return failed("open");
    // What is noted of a file means that its name is there, too.
    if (fsync(dir)) return failed("fsync of the directory");
    for (uint64_t number = 1; access(stop, F_OK); number++) {
        uint64_t what = below(16);
        int end = what < 9 ? append(log) : what < 15 ? write_slot(slots, number) : replace(dir, number);
        if (end) return end;
        usleep(PAUSE_US);
    }
    return 0;
}
