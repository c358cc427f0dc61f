// steps append FILE COUNT [sync]: appends COUNT lines, and prints the number of each that was written (or synced).
// steps closes FILE HOW: closes descriptors that are not its own, as daemons do, and uses their numbers.
// steps slots FILE WHO ROUNDS: writes and reads slots of its own in a file that others change, too.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

// What is wrong: 0, or a number.
static int closes(const char *path, int by_number) {
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND, 0600), pair[2];
    char line[10] = "line ....\n", byte;
    for (int i = 0; i < 20; i++) if (write(fd, line, 10) != 10) return 1;
    for (int other = fd + 1; other < 1000; other++) {
        if (by_number) syscall(SYS_close, other);
        else close(other);
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 2;
    for (int other = 500; other < 610; other++) if (dup2(pair[0], other) != other) return 3;
    if (by_number) close(fd), fd = open(path, O_RDWR | O_APPEND);
    for (int i = 0; i < 200; i++) {
        if (write(fd, line, 10) != 10) return 4;
        usleep(100);
    }
    if (recv(pair[1], &byte, 1, MSG_DONTWAIT) != -1) return 5;
    pid_t pid = fork();
    if (pid == 0) {
        for (int other = 600; other < 610; other++) if (fcntl(other, F_GETFD) < 0) _exit(6);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    struct stat stat;
    if (fstat(fd, &stat) || stat.st_size != 2200) return 7;
    return WEXITSTATUS(status);
}

int main(int count, char **arguments) {
    if (count >= 4 && !strcmp(arguments[1], "append")) return append(arguments[2], atoi(arguments[3]), count > 4);
    if (count == 5 && !strcmp(arguments[1], "slots")) return slots(arguments[2], atoi(arguments[3]), atoi(arguments[4]));
    if (count == 4 && !strcmp(arguments[1], "closes")) return closes(arguments[2], atoi(arguments[3]));
    return 9;
}
