/* Checks the results of the calls, with client and server in one process and without devices. */
#include <pmnet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "calls.c:%d: %s; last error: %s\n", __LINE__, #holds, PMNet_last_error()); \
            exit(1); \
        } \
    } while (0)

/* Length of a response that needs many windows. */
#define LARGE ((size_t)2 << 20)

static const char *address;

static void *use(void *nothing) {
    PMNet_client *client;
    PMNet_session *session;
    const uint8_t *response;
    size_t len;
    uint64_t ids[2];
    CHECK(PMNet_client_open(address, 0, NULL, &client) == PMNET_OK);
    CHECK(PMNet_start_session(client, &session) == PMNET_OK);
    CHECK(PMNet_queue_update(session, "one", 3, &ids[0]) == PMNET_OK);
    CHECK(PMNet_queue_update(session, "two", 3, &ids[1]) == PMNET_OK);
    CHECK(PMNet_wait(session, ids[1]) == PMNET_OK);
    CHECK(PMNet_wait(session, ids[0]) == PMNET_OK);
    CHECK(PMNet_wait(session, ids[0]) == PMNET_E_MISUSE);
    CHECK(PMNet_send_update(session, NULL, 0) == PMNET_OK);
    CHECK(PMNet_send_update(session, NULL, 1) == PMNET_E_ARGUMENT);
    CHECK(PMNet_bypass(session, "ask", 3, NULL, &len) == PMNET_E_ARGUMENT);
    CHECK(PMNet_bypass(session, "ask", 3, &response, &len) == PMNET_OK);
    CHECK(len == 6 && memcmp(response, "answer", 6) == 0);
    CHECK(PMNet_bypass(session, "nothing", 7, &response, &len) == PMNET_OK);
    CHECK(len == 0 && response != NULL);
    CHECK(PMNet_bypass(session, "large", 5, &response, &len) == PMNET_OK);
    CHECK(len == LARGE && response[0] == 0 && response[LARGE - 1] == 7);
    char *large = calloc(1, 2 << 20);
    CHECK(large != NULL && PMNet_send_update(session, large, 2 << 20) == PMNET_E_TOO_LARGE);
    free(large);
    /* The session does not need the client's handle. */
    PMNet_client_close(client);
    CHECK(PMNet_end_session(session) == PMNET_OK);
    return nothing;
}

static const PMNet_request *next(PMNet_server *server, uint32_t kind, const char *bytes) {
    const PMNet_request *request = NULL;
    CHECK(PMNet_recv(server, 10000, &request) == PMNET_OK);
    CHECK(request->kind == kind && request->lost == 0 && request->evicted_count == 0 && request->floor == 0);
    CHECK(request->len == strlen(bytes) && memcmp(request->bytes, bytes, request->len) == 0);
    /* The row contains the key. */
    CHECK(memcmp(request->row + 4, request->key, 18) == 0 && memcmp(request->row + 2, request->key + 18, 2) == 0);
    return request;
}

static void acked(PMNet_server *server, uint32_t kind, const char *bytes) {
    uint64_t id = next(server, kind, bytes)->id;
    CHECK(PMNet_respond(server, id, "", 0, 0) == PMNET_E_MISUSE);
    CHECK(PMNet_ack(server, id) == PMNET_OK);
    CHECK(PMNet_ack(server, id) == PMNET_E_MISUSE);
}

static void responded(PMNet_server *server, const char *bytes, const char *response) {
    uint64_t id = next(server, PMNET_BYPASS, bytes)->id;
    size_t beyond = ((size_t)1 << 30) + 1;
    char *large = calloc(1, beyond);
    CHECK(PMNet_ack(server, id) == PMNET_E_MISUSE);
    CHECK(strstr(PMNet_last_error(), "PMNet_respond") != NULL);
    CHECK(large != NULL && PMNet_respond(server, id, large, beyond, 0) == PMNET_E_TOO_LARGE);
    free(large);
    CHECK(PMNet_respond(server, id, response, strlen(response), 0) == PMNET_OK);
}

static void responded_large(PMNet_server *server) {
    char *large = calloc(1, LARGE);
    CHECK(large != NULL);
    large[LARGE - 1] = 7;
    CHECK(PMNet_respond(server, next(server, PMNET_BYPASS, "large")->id, large, LARGE, 0) == PMNET_OK);
    free(large);
}

static void serve(PMNet_server *server, uint8_t *row) {
    acked(server, PMNET_ROW, "");
    /* The request is handed out again, whether or not the second one was in its batch. */
    CHECK(PMNet_fail(server, next(server, PMNET_UPDATE, "one")->id) == PMNET_OK);
    acked(server, PMNET_UPDATE, "one");
    acked(server, PMNET_UPDATE, "two");
    acked(server, PMNET_UPDATE, "");
    responded(server, "ask", "answer");
    responded(server, "nothing", "");
    responded_large(server);
    const PMNet_request *end = next(server, PMNET_ROW, "");
    memcpy(row, end->row, PMNET_ROW_BYTES);
    CHECK(PMNet_ack(server, end->id) == PMNET_OK);
}

/* A client that is gone: it has not ended its session. */
static void *abandon(void *nothing) {
    PMNet_client *client;
    PMNet_session *session;
    CHECK(PMNet_client_open(address, 0, NULL, &client) == PMNET_OK);
    CHECK(PMNet_start_session(client, &session) == PMNET_OK);
    CHECK(PMNet_send_update(session, "left", 4) == PMNET_OK);
    PMNet_client_close(client);
    return nothing;
}

/* With room for one session, the second client is served because the silence of the first has ended its session. */
static void end_a_silent_session(void) {
    PMNet_server *server;
    const PMNet_request *request = NULL;
    pthread_t thread;
    PMNet_server_options options = {.size = sizeof options, .sessions_max = 1, .silence_seconds = 4};
    CHECK(PMNet_server_open("127.0.0.1:0", &options, &server) == PMNET_E_ARGUMENT);
    options.silence_devices = PMNET_NO_DEVICES;
    CHECK(PMNet_server_open("127.0.0.1:0", &options, &server) == PMNET_OK);
    address = PMNet_server_address(server);
    CHECK(pthread_create(&thread, NULL, abandon, NULL) == 0);
    acked(server, PMNET_ROW, "");
    acked(server, PMNET_UPDATE, "left");
    CHECK(pthread_join(thread, NULL) == 0);
    acked(server, PMNET_ROW, "");
    CHECK(pthread_create(&thread, NULL, abandon, NULL) == 0);
    CHECK(PMNet_recv(server, 10000, &request) == PMNET_OK);
    CHECK(request->kind == PMNET_ROW && request->evicted_count == 1);
    CHECK(PMNet_ack(server, request->id) == PMNET_OK);
    CHECK(PMNet_recv(server, 10000, &request) == PMNET_OK && request->kind == PMNET_UPDATE);
    CHECK(PMNet_ack(server, request->id) == PMNET_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    PMNet_server_close(server);
}

static void refuse_arguments(void) {
    PMNet_client *client = NULL;
    PMNet_server *server = NULL;
    const PMNet_request *request;
    CHECK(strcmp(PMNet_last_error(), "") == 0);
    CHECK(PMNet_client_open(NULL, 0, NULL, &client) == PMNET_E_ARGUMENT);
    CHECK(strcmp(PMNet_last_error(), "server is a null pointer") == 0);
    CHECK(PMNet_client_open("nowhere", 0, NULL, &client) == PMNET_E_ARGUMENT);
    CHECK(PMNet_client_open("127.0.0.1:1", 0, NULL, NULL) == PMNET_E_ARGUMENT);
    CHECK(PMNet_client_open("127.0.0.1:1", 251, NULL, &client) == PMNET_E_ARGUMENT);
    CHECK(client == NULL);
    CHECK(PMNet_start_session(NULL, NULL) == PMNET_E_ARGUMENT);
    CHECK(PMNet_send_update(NULL, "", 0) == PMNET_E_ARGUMENT);
    CHECK(PMNet_end_session(NULL) == PMNET_E_ARGUMENT);
    CHECK(PMNet_recv(NULL, 0, &request) == PMNET_E_ARGUMENT);
    CHECK(PMNet_ack(NULL, 1) == PMNET_E_ARGUMENT);
    CHECK(PMNet_server_address(NULL) == NULL);
    PMNet_client_close(NULL);
    PMNet_server_close(NULL);
    uint8_t row[PMNET_ROW_BYTES] = {9};
    PMNet_server_options options = {.size = sizeof options, .rows = row, .rows_count = 1};
    CHECK(PMNet_server_open("127.0.0.1:0", &options, &server) == PMNET_E_ARGUMENT);
    options.rows_count = SIZE_MAX / 2;
    CHECK(PMNet_server_open("127.0.0.1:0", &options, &server) == PMNET_E_ARGUMENT);
    CHECK(server == NULL);
    CHECK(strcmp(PMNet_result_name(PMNET_E_FULL), "PMNET_E_FULL") == 0);
    CHECK(strcmp(PMNet_result_name(77), "unknown") == 0);
    CHECK(strcmp(PMNet_version(), PMNET_VERSION) == 0);
}

int main(void) {
    PMNet_server *server, *second = NULL;
    const PMNet_request *request = NULL;
    uint8_t row[PMNET_ROW_BYTES];
    pthread_t thread;
    refuse_arguments();
    CHECK(PMNet_server_open("127.0.0.1:0", NULL, &server) == PMNET_OK);
    address = PMNet_server_address(server);
    CHECK(PMNet_server_open(address, NULL, &second) == PMNET_E_SYSTEM);
    CHECK(PMNet_recv(server, 0, &request) == PMNET_AGAIN);
    CHECK(PMNet_recv(server, 10, &request) == PMNET_AGAIN && request == NULL);
    CHECK(PMNet_ack(server, 0) == PMNET_E_MISUSE);
    CHECK(PMNet_ack(server, 1) == PMNET_E_MISUSE);
    CHECK(pthread_create(&thread, NULL, use, NULL) == 0);
    serve(server, row);
    CHECK(pthread_join(thread, NULL) == 0);
    PMNet_server_close(server);
    /* A server accepts the row of the ended session. */
    PMNet_server_options options = {.size = sizeof options, .rows = row, .rows_count = 1};
    for (int i = 0; i < 20; i++) {
        CHECK(PMNet_server_open("127.0.0.1:0", &options, &server) == PMNET_OK);
        PMNet_server_close(server);
    }
    end_a_silent_session();
    return 0;
}
