// Does random things with descriptors and prints what comes back. Under the library it must print the same.
//
// acts DIR SEED: the file is DIR/file; DIR/other is a second one.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FDS = 4, LENGTH_MAX = 9000, STEPS = 600 };

static uint64_t state;
static int fds[FDS];
static char path[2][512];
static char from[LENGTH_MAX], into[LENGTH_MAX];

static unsigned draw(unsigned below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (unsigned)(state >> 33) % below;
}

static unsigned sum(const char *bytes, long len) {
    unsigned sum = 1;
    for (long i = 0; i < len; i++) sum = sum * 31 + (unsigned char)bytes[i];
    return sum;
}

static void say(const char *what, int which, long result) {
    printf("%s %d: %ld %s\n", what, which, result, result < 0 ? strerror(errno) : "");
}

static void say_read(const char *what, int which, long result) {
    printf("%s %d: %ld %u %s\n", what, which, result, result > 0 ? sum(into, result) : 0,
           result < 0 ? strerror(errno) : "");
}

static void fill(void) {
    char byte = (char)draw(256);
    for (int i = 0; i < LENGTH_MAX; i++) from[i] = (char)(byte + i * 7);
}

static int opens(void) {
    static const int kinds[] = {O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY, O_RDWR | O_APPEND, O_RDWR | O_SYNC};
    int flags = kinds[draw(7)] | O_CREAT | O_CLOEXEC;
    const char *name = path[draw(5) == 0];
    switch (draw(3)) {
    case 0: return open(name, flags, 0600);
    case 1: return openat(AT_FDCWD, name, flags, 0600);
    default: return open64(name, flags, 0600);
    }
}

static void reopen(int which) {
    if (draw(2)) say("close", which, close(fds[which]));
    else {
        FILE *file = fdopen(fds[which], "r");
        if (file) {
            say_read("fread", which, (long)fread(into, 1, draw(500), file));
            fclose(file);
        } else close(fds[which]);
    }
    fds[which] = opens();
    say("open", which, fds[which] < 0 ? -1 : 0);
}

static void child(int which) {
    fflush(stdout);
    pid_t pid = draw(2) ? fork() : vfork();
    if (pid == 0) {
        // It shares the offset.
        long done = read(fds[which], into, 100);
        _exit(done > 0 ? 10 + (unsigned char)into[0] % 100 : done == 0 ? 1 : 2);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    say("child", which, WEXITSTATUS(status));
}

static void spawned(int which) {
    char command[700];
    fflush(stdout);
    int copy = dup(fds[which]);
    snprintf(command, sizeof command, "head -c 50 <&%d | cksum", copy);
    say("system", which, system(command));
    close(copy);
    say("offset", which, lseek(fds[which], 0, SEEK_CUR));
}

static void sends(int which) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(1);
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr head; } control = {0};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fds[which], sizeof(int));
    if (sendmsg(pair[0], &message, 0) != 1 || recvmsg(pair[1], &message, 0) != 1) exit(1);
    int other;
    memcpy(&other, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof other);
    say_read("received read", which, read(other, into, draw(300)));
    close(other), close(pair[0]), close(pair[1]);
    say_read("read", which, read(fds[which], into, draw(300)));
}

static void maps(int which) {
    struct stat stat;
    if (fstat(fds[which], &stat) || stat.st_size == 0) return;
    char *bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fds[which], 0);
    if (bytes == MAP_FAILED) { say("mmap", which, -1); return; }
    printf("mmap %d: %u\n", which, sum(bytes, stat.st_size));
    munmap(bytes, (size_t)stat.st_size);
}

static void vectors(int which) {
    struct iovec parts[3] = {{from, draw(50)}, {from + 50, draw(2000)}, {from + 100, draw(50)}};
    // A part that is empty may lie anywhere.
    if (draw(3) == 0) parts[1] = (struct iovec){(void *)(intptr_t)(draw(2) * 8), 0};
    struct iovec spaces[2] = {{into, draw(50)}, {into + 50, draw(2000)}};
    memset(into, 0, sizeof into);
    if (draw(6) == 0) spaces[0] = (struct iovec){NULL, 0};
    switch (draw(5)) {
    case 0: say("writev", which, writev(fds[which], parts, 3)); break;
    case 1: say("pwritev", which, pwritev(fds[which], parts, 3, draw(60000))); break;
    case 2: say("preadv", which, preadv(fds[which], spaces, 2, draw(60000))), printf("%u\n", sum(into, 2050)); break;
    case 3: say("preadv2", which, preadv2(fds[which], spaces, 2, -1, 0)), printf("%u\n", sum(into, 2050)); break;
    default: say("readv", which, readv(fds[which], spaces, 2)), printf("%u\n", sum(into, 2050)); break;
    }
}

static void wrong(int which) {
    switch (draw(6)) {
    case 0: say("write NULL", which, write(fds[which], NULL, 10)); break;
    case 1: say("read NULL", which, read(fds[which], NULL, 10)); break;
    case 2: say("pread -1", which, pread(fds[which], into, 10, -1)); break;
    case 3: say("lseek -1", which, lseek(fds[which], -1, SEEK_SET)); break;
    case 4: say("writev 2000", which, writev(fds[which], NULL, 2000)); break;
    default: say("empty", which, write(fds[which], from, 0) + read(fds[which], into, 0)); break;
    }
}

// The kernel cuts off what is longer than 2 GiB.
static void huge(int which) {
    size_t len = (size_t)3 << 30;
    char *space = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) exit(1);
    long done = draw(2) ? read(fds[which], space, len) : pread(fds[which], space, len, draw(60000));
    printf("huge %d: %ld %u\n", which, done, done > 0 ? sum(space, done) : 0);
    munmap(space, len);
    say_read("read", which, read(fds[which], into, draw(300)));
}

// A child with the parent's memory has descriptors of its own.
static void child_changes(int which) {
    int other = (which + 1) % FDS, what = (int)draw(3), before = fcntl(fds[which], F_GETFL);
    fflush(stdout);
    pid_t pid = vfork();
    if (pid == 0) {
        if (what == 0) for (int fd = 3; fd < 60; fd++) close(fd);
        else if (what == 1) dup2(fds[other], fds[which]);
        else if (!(before & O_APPEND)) fcntl(fds[which], F_SETFL, before | O_APPEND);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    say("pwrite", which, pwrite(fds[which], from, draw(300), draw(60000)));
    say_read("pread", which, pread(fds[which], into, draw(300), draw(60000)));
    say("offset", which, lseek(fds[which], 0, SEEK_CUR));
    // Where the library does not know of a descriptor, the kernel's offset behind what it appends may be too low.
    fcntl(fds[which], F_SETFL, before);
}

// The flags belong to the open file, and not to the descriptor.
static void flags(int which) {
    int copy = dup(fds[which]), before = fcntl(copy, F_GETFL);
    say("F_SETFL", which, fcntl(copy, F_SETFL, before ^ O_APPEND));
    say("pwrite", which, pwrite(fds[which], from, draw(300), draw(60000)));
    say("write", which, write(fds[which], from, draw(300)));
    fcntl(copy, F_SETFL, before);
    close(copy);
}

static void copies(int which) {
    int to = (which + 1) % FDS, pipes[2];
    switch (draw(3)) {
    case 0: say("sendfile", which, sendfile(fds[to], fds[which], NULL, draw(3000))); break;
    case 1: say("copy_file_range", which, copy_file_range(fds[which], NULL, fds[to], NULL, draw(3000), 0)); break;
    default:
        if (pipe(pipes)) exit(1);
        say("splice", which, splice(fds[which], NULL, pipes[1], NULL, draw(3000), SPLICE_F_NONBLOCK));
        close(pipes[0]), close(pipes[1]);
    }
}

static void *threads_write(void *which) {
    char line[64];
    for (int i = 0; i < 50; i++) {
        // All threads write the same bytes: which of them comes when is chance.
        memset(line, 'a', sizeof line);
        if (write(fds[(intptr_t)which], line, sizeof line) < 0) break;
    }
    return NULL;
}

static void threads(int which) {
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) pthread_create(&thread[i], NULL, threads_write, (void *)(intptr_t)which);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    say("threads", which, lseek(fds[which], 0, SEEK_CUR));
}

static volatile int handled;
static void handler(int number) {
    (void)number;
    handled++;
    if (pwrite(fds[0], "signal", 6, 100) < 0) handled += 1000;
}

static void step(void) {
    int which = (int)draw(FDS), copy, bytes;
    fill();
    switch (draw(35)) {
    case 0: case 1: case 2: case 3: say_read("read", which, read(fds[which], into, draw(LENGTH_MAX))); break;
    case 4: case 5: case 6: case 7: say("write", which, write(fds[which], from, draw(LENGTH_MAX))); break;
    case 8: case 9: case 10: say_read("pread", which, pread(fds[which], into, draw(LENGTH_MAX), draw(60000))); break;
    case 11: case 12: case 13: say("pwrite", which, pwrite(fds[which], from, draw(LENGTH_MAX), draw(60000))); break;
    case 14: case 15: say("lseek", which, lseek(fds[which], (long)draw(60000) - 5000, (int)draw(4))); break;
    case 16: case 17: case 18: vectors(which); break;
    case 19: say("fsync", which, draw(2) ? fsync(fds[which]) : fdatasync(fds[which])); break;
    case 20:
        copy = draw(2) ? dup(fds[which]) : fcntl(fds[which], F_DUPFD_CLOEXEC, 50);
        say_read("dup", which, read(copy, into, draw(100)));
        close(copy);
        break;
    case 21: say("dup2", which, dup2(fds[which], fds[(which + 1) % FDS]) < 0 ? -1 : 0); break;
    case 22: case 23: reopen(which); break;
    case 24: child(which); break;
    case 25: say("ftruncate", which, ftruncate(fds[which], draw(60000))); break;
    case 26: wrong(which); break;
    case 27: copies(which); break;
    case 28: maps(which); break;
    case 29: bytes = 0, ioctl(fds[which], FIONREAD, &bytes), say("FIONREAD", which, bytes); break;
    case 30: if (draw(4) == 0) sends(which); else if (draw(4) == 0) spawned(which); else say("dprintf", which, dprintf(fds[which], "%d %.2f %s", 5, 1.5, "text")); break;
    case 31: huge(which); break;
    case 32: child_changes(which); break;
    case 33: flags(which); break;
    default: if (draw(8) == 0) threads(which); else say("lockf", which, lockf(fds[which], F_TEST, 10)); break;
    }
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    state = strtoull(arguments[2], NULL, 10) * 2654435761u + 88172645463325252u;
    snprintf(path[0], sizeof path[0], "%s/file", arguments[1]);
    snprintf(path[1], sizeof path[1], "%s/other", arguments[1]);
    for (int i = 0; i < FDS; i++) say("open", i, (fds[i] = opens()) < 0 ? -1 : 0);
    for (int i = 0; i < STEPS; i++) {
        if (i == STEPS / 2) {
            struct sigaction action = {.sa_handler = handler};
            sigaction(SIGUSR1, &action, NULL);
        }
        if (i > STEPS / 2 && i % 50 == 0) raise(SIGUSR1);
        step();
    }
    for (int i = 0; i < FDS; i++) say("end", i, lseek(fds[i], 0, SEEK_CUR));
    say("handled", 0, handled);
    return 0;
}
