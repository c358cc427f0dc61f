/*
 * A client of the service in server.c.
 *
 *     client SERVER DEVICES LIST COUNT     pushes the words w1 to wCOUNT, and verifies the list every few rounds
 *     client SERVER DEVICES LIST           prints the list
 *
 * Prints "durable N" when N words are durable. SERVER may be the address of a device in front of the server.
 */
#include <pmnet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Updates in a round: one that is sent alone, and others that are in flight together. */
#define ROUND 10

static void fail(const char *what, int result) {
    fprintf(stderr, "%s: %s: %s\n", what, PMNet_result_name(result), PMNet_last_error());
    exit(1);
}

static void must(const char *what, int result) {
    if (result != PMNET_OK) fail(what, result);
}

static int word(char *text, size_t room, const char *list, long number) {
    return snprintf(text, room, "push %s w%ld", list, number);
}

static long push_round(PMNet_session *session, const char *list, long from, long to) {
    char text[256];
    uint64_t ids[ROUND];
    int len = word(text, sizeof text, list, from);
    must("update", PMNet_send_update(session, text, (size_t)len));
    for (long n = from + 1; n <= to; n++) {
        len = word(text, sizeof text, list, n);
        must("queue", PMNet_queue_update(session, text, (size_t)len, &ids[n - from]));
    }
    for (long n = from + 1; n <= to; n++) must("wait", PMNet_wait(session, ids[n - from]));
    return to;
}

static const char *get(PMNet_session *session, const char *list, size_t *len) {
    char text[256];
    const uint8_t *response;
    int request = snprintf(text, sizeof text, "get %s", list);
    must("bypass", PMNet_bypass(session, text, (size_t)request, &response, len));
    return (const char *)response;
}

/* A session reads its own writes: every word once, in order. */
static void verify(PMNet_session *session, const char *list, long count) {
    size_t len, at = 0;
    const char *words = get(session, list, &len);
    for (long n = 1; n <= count; n++) {
        char expected[32];
        size_t more = (size_t)snprintf(expected, sizeof expected, n > 1 ? " w%ld" : "w%ld", n);
        if (len - at < more || memcmp(words + at, expected, more) != 0) {
            fprintf(stderr, "after %ld words, word %ld is wrong: %.*s\n", count, n, (int)len, words);
            exit(3);
        }
        at += more;
    }
    if (at != len) {
        fprintf(stderr, "more than %ld words: %.*s\n", count, (int)len, words);
        exit(3);
    }
}

static void push_all(PMNet_session *session, const char *list, long count) {
    for (long done = 0; done < count;) {
        long to = done + ROUND < count ? done + ROUND : count;
        done = push_round(session, list, done + 1, to);
        printf("durable %ld\n", done);
        fflush(stdout);
        /* Waits for the server; updates wait only for the devices. */
        if (done % (5 * ROUND) == 0) verify(session, list, done);
    }
    verify(session, list, count);
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: client SERVER DEVICES LIST [COUNT]\n");
        return 2;
    }
    PMNet_client *client;
    PMNet_session *session;
    PMNet_client_options options = {.size = sizeof options, .give_up_ms = 20000};
    unsigned devices = (unsigned)strtoul(argv[2], NULL, 10);
    must("open", PMNet_client_open(argv[1], devices, &options, &client));
    must("start", PMNet_start_session(client, &session));
    if (argc == 5) {
        push_all(session, argv[3], strtol(argv[4], NULL, 10));
    } else {
        size_t len;
        const char *words = get(session, argv[3], &len);
        printf("%.*s\n", (int)len, words);
    }
    must("end", PMNet_end_session(session));
    PMNet_client_close(client);
    return 0;
}
