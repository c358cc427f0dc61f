// steps append FILE COUNT [sync]: appends COUNT lines, and prints the number of each that was written (or synced).
// steps slots FILE WHO ROUNDS: writes and reads slots of its own in a file that others change, too.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 100, SLOTS = 16, SLOT = 3000, WRITERS = 2 };

static int append(const char *path, int count, int syncs) {
    char line[LINE + 1];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0) return 1;
    for (int i = 0; i < count; i++) {
        snprintf(line, sizeof line, "%0*d\n", LINE - 1, i);
        if (write(fd, line, LINE) != LINE) return 0;
        if (syncs && fsync(fd)) return 0;
        dprintf(1, "%d\n", i + 1);
    }
    return 0;
}

static int slots(const char *path, int who, int rounds) {
    static unsigned char bytes[SLOT], seen[SLOT];
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0) return 1;
    for (int i = 0; i < rounds; i++) {
        long at = (long)((i % SLOTS) * WRITERS + who) * SLOT;
        memset(bytes, who * 100 + i % 100 + 1, SLOT);
        if (pwrite(fd, bytes, SLOT, at) != SLOT) return 2;
        if (i % 7 == 0 && fsync(fd)) return 3;
        if (pread(fd, seen, SLOT, at) != SLOT || memcmp(bytes, seen, SLOT)) return 4;
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count >= 4 && !strcmp(arguments[1], "append")) return append(arguments[2], atoi(arguments[3]), count > 4);
    if (count == 5 && !strcmp(arguments[1], "slots")) return slots(arguments[2], atoi(arguments[3]), atoi(arguments[4]));
    return 9;
}
