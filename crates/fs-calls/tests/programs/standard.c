// Uses the C library's files on descriptors that the program has opened by itself, and ends threads that write.
//
// standard FILE WHAT
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fd;

static void *writes(void *unused) {
    for (;;) if (pwrite(fd, "line\n", 5, 0) < 0) abort();
    return unused;
}

static void *appends(void *unused) {
    for (;;) if (write(fd, "line\n", 5) < 0) abort();
    return unused;
}

static void *prints(void *unused) {
    for (int i = 0; i < 20000; i++) fputs("line\n", stdout), fflush(stdout);
    return unused;
}

static void ends(void *(*work)(void *)) {
    pthread_t thread;
    alarm(20);
    pthread_create(&thread, NULL, work, NULL);
    usleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    if (ftruncate(fd, 0)) abort();
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    const char *what = arguments[2];
    fd = open(arguments[1], O_RDWR | O_CREAT, 0600);
    if (!strcmp(what, "cancel")) return ends(writes), ends(appends), 0;
    char line[20] = "";
    if (!strcmp(what, "input")) {
        if (write(fd, "one\ntwo\nthree\n", 14) < 0 || dup2(fd, 0) < 0) return 1;
        lseek(0, 4, SEEK_SET);
        fputs(fgets(line, sizeof line, stdin), stdout);
        return 0;
    }
    if (!strcmp(what, "closed")) {
        // The C library closes a number by itself, and gives it to a file of its own.
        char other[300];
        snprintf(other, sizeof other, "%s.other", arguments[1]);
        dup2(fd, 1), close(fd), fclose(stdout);
        FILE *file = fopen(other, "w+");
        fputs("other\n", file), fflush(file);
        if (fileno(file) != 1 || pwrite(1, "OTHER", 5, 0) < 0) return 1;
        return pread(1, line, 6, 0) != 6 || memcmp(line, "OTHER\n", 6);
    }
    if (!strcmp(what, "threads")) {
        // Another thread writes by the C library meanwhile: no line is lost, whoever writes it.
        pthread_t thread;
        dup2(fd, 1);
        pthread_create(&thread, NULL, prints, NULL);
        for (int i = 0; i < 20000; i++) if (write(1, "line\n", 5) < 0) return 1;
        pthread_join(thread, NULL);
        return 0;
    }
    // Output: what the C library writes, the program, and its children follow each other.
    int direct = !strcmp(what, "direct");
    if (direct) close(1), fd = open(arguments[1], O_RDWR);
    else dup2(fd, 1);
    printf("first\n"), fflush(stdout);
    if (write(direct ? 1 : fd, "second\n", 7) < 0) return 1;
    printf("third\n"), fflush(stdout);
    if (system("echo fourth")) return 1;
    lseek(1, 100, SEEK_SET);
    printf("at 100\n"), fflush(stdout);
    printf("offset %ld\n", (long)lseek(1, 0, SEEK_CUR)), fflush(stdout);
    if (pwrite(1, "FIRST", 5, 0) < 0 || ftruncate(1, 120)) return 1;
    lseek(1, 30, SEEK_SET);
    printf("at 30\n");
    return 0;
}
