/*
 * pmnet.h - PMNet for C: updates that the network makes durable.
 *
 * After Seemakhupt et al., "PMNet: In-Network Data Persistence", ISCA 2021. The six calls of the paper's Table I are
 * PMNet_start_session, PMNet_send_update, PMNet_bypass and PMNet_end_session for clients, PMNet_recv and PMNet_ack for
 * servers; the others stand around them. The protocol: docs/format/pmnet.md. A walk through this file: docs/pmnet-c.md.
 *
 * DURABLE. An update is durable when every device of the chain between client and server has it in its persistent log,
 * or when the server has committed it; and when the same holds for every update of its session before it. Whatever is
 * durable is applied by the server exactly once, in the order of its session, also if server, devices and client crash
 * and start again. Of an update that is not known to be durable, nothing is known: it may be applied, once, or not.
 *
 * RESULTS. Every call that returns int returns PMNET_OK, PMNET_AGAIN, or one of the errors below, which are negative;
 * PMNet_last_error tells more about an error. After an error nothing has been written through pointers to results.
 *
 * THREADS. Every handle may be used from several threads at once. Calls on one session wait for each other: use a session
 * per thread. PMNet_end_session, PMNet_client_close and PMNet_server_close must be the last use of their handle, with no
 * other call on it under way. No handle survives fork().
 *
 * MEMORY. Nothing that is passed in is kept after the call returns. What is handed out belongs to the library.
 *
 * NETWORK. UDP. Addresses are "HOST:PORT" or "[IPV6]:PORT"; of a host name's addresses the first one counts. Devices take
 * packets for PMNet's where one of the two ports is between 51000 and 52000.
 */
#ifndef PMNET_H
#define PMNET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version that this file belongs to; compare with PMNet_version(). */
#define PMNET_VERSION "0.1.0"

/* Bytes of a session's key and row, see PMNet_request. */
#define PMNET_KEY_BYTES 20
#define PMNET_ROW_BYTES 48

/* A value of `spin`: calls never wait in the kernel, which takes a core. */
#define PMNET_SPIN_ALWAYS 0xFFFFFFFFu

/* What calls return. */
enum {
    PMNET_OK = 0,
    /* Nothing yet: call again. */
    PMNET_AGAIN = 1,
    /* The caller's: a null pointer, a size, an address that cannot be read, rows that are none. */
    PMNET_E_ARGUMENT = -1,
    /* The caller's: a request that is answered already, or with the wrong call; see there. */
    PMNET_E_MISUSE = -2,
    /* The request or response is longer than the protocol can carry. */
    PMNET_E_TOO_LARGE = -3,
    /* As many requests are queued as may be: wait for one. */
    PMNET_E_FULL = -4,
    /* The session has used all its numbers (2^31 updates): end it and start another. */
    PMNET_E_EXHAUSTED = -5,
    /* The session is over: it has failed before. */
    PMNET_E_ENDED = -6,
    /* The server refuses the session, or has lost it. What was not known to be durable may be applied or not. */
    PMNET_E_REFUSED = -7,
    /* Nobody has answered for too long. What was not known to be durable may be applied or not. */
    PMNET_E_NO_ANSWER = -8,
    /* The operating system refuses something: an address that is taken, a thread, a socket. */
    PMNET_E_SYSTEM = -9,
    /* A defect of this library. The handle must not be used any more, other than to close it. */
    PMNET_E_INTERNAL = -10
};

/* ---- Client ------------------------------------------------------------------------------------------------------ */

/* A server to have sessions with. */
typedef struct PMNet_client PMNet_client;
/* A session: requests that are applied in the order in which they were sent. It sends and receives while a call is under way. */
typedef struct PMNet_session PMNet_session;

/*
 * Settings of a client. Set all to zero but `size`; a zero stands for the usual value. The size tells the library which
 * fields the caller knows, so that later versions can add some.
 */
typedef struct PMNet_client_options {
    /* sizeof(PMNet_client_options). */
    size_t size;
    /* An address of this host, "HOST:PORT", or NULL: the kernel chooses. With a port, only one session at a time. */
    const char *bind;
    /* Largest IP packet of the path, bytes; 1500. From 576 to 65535. */
    uint32_t mtu;
    /* Most packets of updates under way; 256, at most 4096. */
    uint32_t window;
    /* Most requests of a session that are queued, or not waited for; 1024, at most 65536. */
    uint32_t requests_max;
    /* Without any answer for so long a session has failed, milliseconds; 30000. */
    uint32_t give_up_ms;
    /*
     * How long to look for packets before waiting in the kernel, microseconds, less while that comes to nothing; or
     * PMNET_SPIN_ALWAYS. Being woken takes some 25 us: with a core to spare, 50 is a good value.
     */
    uint32_t spin;
    /* Zero. */
    uint32_t reserved;
    /*
     * A file with the key that clients, devices and server share, or NULL: 32 hexadecimal digits, readable by its owner alone.
     * With it, only packets that are sealed with the key are believed.
     */
    const char *key_file;
} PMNet_client_options;

/*
 * Makes a client of the server at `server`. Sends nothing yet.
 *
 * devices: how many devices are in the chain to the server, 0 to 250. With 0 only the server makes updates durable.
 *          With more than there are, too. With fewer, what is reported durable may be missing in the devices that were
 *          left out.
 * options: settings, or NULL for the usual ones.
 * client:  takes the handle; to be closed with PMNet_client_close.
 *
 * PMNET_OK, PMNET_E_ARGUMENT.
 */
int PMNet_client_open(const char *server, uint32_t devices, const PMNet_client_options *options, PMNet_client **client);

/* Closes a client. Its sessions go on, and are ended by themselves. NULL is nothing. */
void PMNet_client_close(PMNet_client *client);

/*
 * Table I: starts a session. Does not wait for the server: the first request does.
 *
 * session: takes the handle; to be ended with PMNet_end_session.
 *
 * PMNET_OK, PMNET_E_ARGUMENT, PMNET_E_SYSTEM.
 */
int PMNet_start_session(PMNet_client *client, PMNet_session **session);

/*
 * Table I: sends an update, and waits until it is durable. Nothing is returned for it: requests that need a result are
 * bypasses.
 *
 * request: `len` bytes; NULL is allowed if len is 0. At most 1024 packets' worth: 1.4 MB at the usual MTU.
 *
 * PMNET_OK: durable. PMNET_E_ARGUMENT, PMNET_E_TOO_LARGE, PMNET_E_FULL, PMNET_E_EXHAUSTED, PMNET_E_ENDED: not sent.
 * PMNET_E_REFUSED, PMNET_E_NO_ANSWER, PMNET_E_SYSTEM: unknown; the session is over.
 */
int PMNet_send_update(PMNet_session *session, const void *request, size_t len);

/*
 * The same without waiting, to have several updates under way: PMNet_wait waits.
 *
 * id: takes the update's number, for PMNet_wait.
 *
 * Results as PMNet_send_update, where PMNET_OK says: sent, or queued to be sent by later calls on this session.
 */
int PMNet_queue_update(PMNet_session *session, const void *request, size_t len, uint64_t *id);

/*
 * Waits until a queued update is durable. Each can be waited for once; one that is durable makes all before it durable.
 *
 * PMNET_OK: durable. PMNET_E_MISUSE: no such update, or it was waited for. Otherwise as PMNet_send_update.
 */
int PMNet_wait(PMNet_session *session, uint64_t id);

/*
 * Table I: has the server execute a request after all earlier ones of this session, and waits for its response. The
 * network logs nothing: with PMNET_E_NO_ANSWER and its like the request may have been executed, once, or not.
 *
 * request:      as in PMNet_send_update.
 * response:     takes a pointer to the response, which belongs to the session, until the next PMNet_bypass on it or its
 *               end. Not NULL even if the response is empty.
 * response_len: takes its length, bytes.
 *
 * Results as PMNet_send_update.
 */
int PMNet_bypass(PMNet_session *session, const void *request, size_t len, const uint8_t **response, size_t *response_len);

/*
 * Table I: ends a session: waits, for a second at most, until the server has applied everything. The handle is gone,
 * whatever is returned.
 *
 * PMNET_OK: everything is applied. PMNET_E_NO_ANSWER: the server is away, or slow; what was durable stays so, and is
 * applied in time. PMNET_E_ARGUMENT, PMNET_E_REFUSED, PMNET_E_SYSTEM, PMNET_E_INTERNAL.
 */
int PMNet_end_session(PMNet_session *session);

/* ---- Server ------------------------------------------------------------------------------------------------------ */

/*
 * A server: a socket, and a thread of the library's own that serves it.
 *
 * EXACTLY ONCE is made by the application and the library together. With each request comes the row of its session: 48
 * bytes that say how far the session has come. The application commits the effects of the request AND its row, under its
 * key, in one transaction: both are durable, or neither is. Then it answers the request, and only then the library tells
 * network and client. When the server starts again, the application gives all rows back, and the library knows what has
 * been applied and what must come once more.
 *
 * BATCHES. Requests come in batches: what has arrived while the last batch was being committed. Answers leave, and the
 * next batch begins, once every request of the batch is answered. So one commit may cover a batch, and should: take
 * requests until `behind` is 0, commit, answer. A thread that waits in PMNet_recv for more before it answers what it has
 * waits for itself.
 */
typedef struct PMNet_server PMNet_server;

/* Kinds of requests, and how each is answered. */
enum {
    /* Apply `bytes`, and commit that together with the row; then PMNet_ack. */
    PMNET_UPDATE = 1,
    /*
     * Execute `bytes` after all earlier requests of the session; then PMNet_respond. If that changes anything, commit it
     * together with the row. If it does not, the row may be left out.
     */
    PMNET_BYPASS = 2,
    /* A session begins or ends: delete the evicted rows and commit the row, in one transaction; then PMNet_ack. */
    PMNET_ROW = 3
};

/*
 * A request. It belongs to the library, and is there until it is answered or its server closed. The library may hand out
 * longer structures in later versions.
 */
typedef struct PMNet_request {
    /* Names it in PMNet_ack, PMNet_respond and PMNet_fail. Never given twice by a server handle. */
    uint64_t id;
    /* PMNET_UPDATE, PMNET_BYPASS or PMNET_ROW. */
    uint32_t kind;
    /*
     * A bypass that is not to be executed: it may have been before the server started, and its response is lost. Respond
     * in the application's own words that the reply is lost. 0 otherwise.
     */
    uint32_t lost;
    /* What the client has sent; not NULL. Empty for PMNET_ROW. */
    const uint8_t *bytes;
    size_t len;
    /* The session: PMNET_KEY_BYTES bytes. Its row replaces any that was stored under this key. */
    const uint8_t *key;
    /* PMNET_ROW_BYTES bytes to be stored. They hold the key, too (docs/format/pmnet.md). */
    const uint8_t *row;
    /* Keys of rows to be deleted, one behind the other, `evicted_count` times PMNET_KEY_BYTES; PMNET_ROW only. */
    const uint8_t *evicted;
    size_t evicted_count;
    /* A number to be stored with the rows, one for the whole server, in the place of the one before. It never falls. */
    uint32_t floor;
    /* How many more requests of the batch PMNet_recv has at once; with several threads, had. */
    uint32_t behind;
} PMNet_request;

/* Settings of a server; as PMNet_client_options. */
typedef struct PMNet_server_options {
    /* sizeof(PMNet_server_options). */
    size_t size;
    /* All rows that are stored, in any order, one behind the other: `rows_count` times PMNET_ROW_BYTES. None: a new server. */
    const uint8_t *rows;
    size_t rows_count;
    /* The floor that is stored; 0 for a new server. */
    uint32_t floor;
    /* Largest IP packet of the path, bytes; 1500. From 576 to 65535. */
    uint32_t mtu;
    /* Most sessions whose rows are kept, with those that have ended; 65536. */
    uint32_t sessions_max;
    /* Most requests in a batch; 64, at most 4096. */
    uint32_t batch_max;
    /* Not zero: also take sessions of the PMNet authors' clients, which begin without a session start. */
    uint32_t foreign;
    /*
     * How long to look for packets before waiting in the kernel, microseconds, less while that comes to nothing; or
     * PMNET_SPIN_ALWAYS. Being woken takes some 25 us: with a core to spare, 50 is a good value.
     */
    uint32_t spin;
    /*
     * A file with the key that clients, devices and server share, or NULL: 32 hexadecimal digits, readable by its owner alone.
     * With it, only packets that are sealed with the key are believed.
     */
    const char *key_file;
} PMNet_server_options;

/*
 * Starts a server. Requests arrive as soon as this returns.
 *
 * listen:  its address; port 0 lets the kernel choose. On a host with several addresses name one: answers must come from
 *          where clients have sent to.
 * options: rows, floor and settings, or NULL for a new server. Rows that are stored and not given here break the promise.
 * server:  takes the handle; to be closed with PMNet_server_close.
 *
 * PMNET_OK, PMNET_E_ARGUMENT, PMNET_E_SYSTEM.
 */
int PMNet_server_open(const char *listen, const PMNet_server_options *options, PMNet_server **server);

/* Where the server listens, "HOST:PORT": lives as long as the handle. NULL if server is NULL. */
const char *PMNet_server_address(const PMNet_server *server);

/*
 * Table I: the next request. Within a session they come in order, and are to be committed in this order; several may be
 * committed together.
 *
 * timeout_ms: how long to wait at most, milliseconds; 0 not at all, negative for ever.
 * request:    takes a pointer to the request.
 *
 * PMNET_OK. PMNET_AGAIN: none came. PMNET_E_ARGUMENT. PMNET_E_SYSTEM: the server has ended; close it.
 */
int PMNet_recv(PMNet_server *server, int timeout_ms, const PMNet_request **request);

/*
 * Table I: an update or a row is committed. The acknowledgement leaves with its batch, and the devices forget the update.
 *
 * PMNET_OK. PMNET_E_MISUSE: a bypass; not a request that waits for an answer; or an earlier one of its session has failed.
 */
int PMNet_ack(PMNet_server *server, uint64_t id);

/*
 * A bypass is executed. It must show committed state only.
 *
 * response: `len` bytes; NULL is allowed if len is 0. At most 1 GiB.
 * changed:  not zero if it changed something, and the row is committed with it.
 *
 * PMNET_OK. PMNET_E_MISUSE: not a bypass, or as in PMNet_ack. PMNET_E_TOO_LARGE: not answered; give a shorter response.
 */
int PMNet_respond(PMNet_server *server, uint64_t id, const void *response, size_t len, int changed);

/*
 * Nothing of a request, nor of those of its session behind it, was committed, nor will be: they come again. Those behind
 * it that PMNet_recv has handed out must be failed, too; those that it has not are. If it is not known what is committed,
 * close the server instead, and open it again with the rows that are stored.
 *
 * PMNET_OK. PMNET_E_MISUSE: not a request that waits for an answer, or one behind it has been answered.
 */
int PMNet_fail(PMNet_server *server, uint64_t id);

/*
 * Stops a server, within about 100 ms, and frees it with all its requests. What was not answered comes again to the next server that is
 * started with the stored rows. NULL is nothing.
 */
void PMNet_server_close(PMNet_server *server);

/* ---- Both -------------------------------------------------------------------------------------------------------- */

/*
 * What the last call on this thread that returned an error had to say: a sentence in English. Lives until the next error on
 * this thread; never NULL, empty if there was none.
 */
const char *PMNet_last_error(void);

/* The name of a result, as "PMNET_E_SYSTEM"; "unknown" for other numbers. Lives for ever. */
const char *PMNet_result_name(int result);

/* The library's version, as PMNET_VERSION. Lives for ever. */
const char *PMNet_version(void);

#ifdef __cplusplus
}
#endif

#endif
