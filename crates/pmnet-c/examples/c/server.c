/*
 * A durable service that uses PMNet: it stores lists of words in a journal.
 *
 *     server ADDRESS JOURNAL [DEVICES]
 *
 * Listens on ADDRESS (port 0: any port), prints "listening ADDRESS", and serves until SIGINT or SIGTERM. It may be
 * killed at any time: every acknowledged request is in the journal, or is sent again by the network. With the number
 * of DEVICES between clients and server, sessions of clients that are gone end after 18 hours.
 */
#define _POSIX_C_SOURCE 200809L
#include "store.h"

#include <pmnet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX 64
#define WAIT_MS 200
#define DEVICES_MAX 250
#define SILENCE_SECONDS 64800

static volatile sig_atomic_t stopping;

static void stop(int signal) {
    (void)signal;
    stopping = 1;
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, PMNet_last_error());
    exit(1);
}

/* Receives a batch. Returns the number of its requests, or 0 if none came for a while. */
static size_t receive(PMNet_server *server, const PMNet_request **batch) {
    size_t count = 0;
    do {
        int result = PMNet_recv(server, count > 0 ? 0 : WAIT_MS, &batch[count]);
        if (result == PMNET_AGAIN) break;
        if (result != PMNET_OK) fail("receive");
        count++;
    } while (count < BATCH_MAX && batch[count - 1]->behind > 0);
    return count;
}

static int changes(const PMNet_request *request) {
    if (request->kind == PMNET_BYPASS) return !request->lost && store_changes(request->bytes, request->len);
    return 1;
}

static void answer(PMNet_server *server, struct store *store, const PMNet_request *request) {
    const char *response = "lost";
    int result;
    if (request->kind != PMNET_ROW && !request->lost)
        response = store_execute(store, request->bytes, request->len);
    if (request->kind == PMNET_BYPASS)
        result = PMNet_respond(server, request->id, response, strlen(response), changes(request));
    else
        result = PMNet_ack(server, request->id);
    if (result == PMNET_E_TOO_LARGE) result = PMNet_respond(server, request->id, "too long", 8, changes(request));
    if (result != PMNET_OK) fail("answer");
}

static void serve(PMNet_server *server, struct store *store) {
    const PMNet_request *batch[BATCH_MAX];
    while (!stopping) {
        size_t count = receive(server, batch);
        for (size_t i = 0; i < count; i++)
            if (changes(batch[i])) store_log(store, batch[i]);
        /* After an error only the journal shows what is durable: exit, so that a restart reads it. */
        if (store_commit(store) != 0) {
            perror("journal");
            exit(1);
        }
        for (size_t i = 0; i < count; i++) answer(server, store, batch[i]);
    }
}

/* Has silent sessions end. Returns 0 if the text is not a number of devices. */
static int end_silent_sessions(PMNet_server_options *options, const char *text) {
    char *end;
    unsigned long devices = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || devices > DEVICES_MAX) return 0;
    options->silence_seconds = SILENCE_SECONDS;
    options->silence_devices = devices > 0 ? (uint32_t)devices : PMNET_NO_DEVICES;
    return 1;
}

int main(int argc, char **argv) {
    PMNet_server_options options = {.size = sizeof options};
    if (argc < 3 || argc > 4 || (argc == 4 && !end_silent_sessions(&options, argv[3]))) {
        fprintf(stderr, "usage: server ADDRESS JOURNAL [DEVICES]\n");
        return 2;
    }
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);

    struct store store;
    if (store_open(&store, argv[2]) != 0) {
        perror(argv[2]);
        return 1;
    }
    options.rows = store.rows;
    options.rows_count = store.rows_count;
    options.floor = store.floor;
    options.batch_max = BATCH_MAX;
    PMNet_server *server = NULL;
    if (PMNet_server_open(argv[1], &options, &server) != PMNET_OK) fail(argv[1]);
    printf("listening %s\n", PMNet_server_address(server));
    fflush(stdout);
    serve(server, &store);
    PMNet_server_close(server);
    return 0;
}
