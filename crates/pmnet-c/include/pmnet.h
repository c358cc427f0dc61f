/*
 * pmnet.h - PMNet for C: updates that become durable in the network.
 *
 * Source: Seemakhupt et al., "PMNet: In-Network Data Persistence", ISCA 2021. The six calls of the paper's Table I
 * are PMNet_start_session, PMNet_send_update, PMNet_bypass and PMNet_end_session for clients, and PMNet_recv and
 * PMNet_ack for servers. The other calls are needed to use these. Protocol: docs/format/pmnet.md. Introduction to
 * this file: docs/pmnet-c.md.
 *
 * DURABLE. An update is durable if every earlier update of its session is durable, and either every device of the
 * chain between client and server has it in its persistent log, or the server has committed it. The server applies
 * every durable update exactly once, in the order of its session, even if server, devices and client crash and start
 * again. An update that is not known to be durable may be applied once, or not at all.
 *
 * RESULTS. Every call that returns int returns PMNET_OK, PMNET_AGAIN, or one of the errors below, which are
 * negative. PMNet_last_error describes the last error. After an error nothing has been written through pointers to
 * results.
 *
 * THREADS. Every handle may be used from several threads at once. Calls on one session wait for each other, so use
 * one session for each thread. PMNet_end_session, PMNet_client_close and PMNet_server_close must be the last call on
 * their handle, and no other call on it may be running. A handle cannot be used after fork().
 *
 * MEMORY. When a call has returned, the library keeps no pointer that was passed to it. Memory that it returns
 * belongs to the library.
 *
 * NETWORK. UDP. An address is "HOST:PORT" or "[IPV6]:PORT". If a host name has several addresses, the first one is
 * used. Devices treat a packet as PMNet's if one of its two ports is between 51000 and 52000.
 */
#ifndef PMNET_H
#define PMNET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this file. Compare it with PMNet_version(). */
#define PMNET_VERSION "0.1.0"

/* Length of a session's key and of its row in bytes; see PMNet_request. */
#define PMNET_KEY_BYTES 20
#define PMNET_ROW_BYTES 48

/* A value of `spin`: calls busy-poll and never wait in the kernel. That uses a whole core. */
#define PMNET_SPIN_ALWAYS 0xFFFFFFFFu

/* A value of `silence_devices`: no client's path to the server has a device. */
#define PMNET_NO_DEVICES 0xFFFFFFFFu

/* Results of calls. */
enum {
    PMNET_OK = 0,
    /* No result yet. Call again. */
    PMNET_AGAIN = 1,
    /* An argument is wrong: a null pointer, a size, an address that cannot be resolved, invalid rows. */
    PMNET_E_ARGUMENT = -1,
    /* The request is already answered, or must be answered with another call; see there. */
    PMNET_E_MISUSE = -2,
    /* The request or response is longer than the protocol allows. */
    PMNET_E_TOO_LARGE = -3,
    /* Too many requests are queued. Wait for one of them. */
    PMNET_E_FULL = -4,
    /* The session has used all its numbers (2^31 updates). End it and start another one. */
    PMNET_E_EXHAUSTED = -5,
    /* The session is over, because it has failed before. */
    PMNET_E_ENDED = -6,
    /* The server refuses the session, or has lost it. Updates not known to be durable may be applied or not. */
    PMNET_E_REFUSED = -7,
    /* No answer arrived for too long. Updates not known to be durable may be applied or not. */
    PMNET_E_NO_ANSWER = -8,
    /* The operating system refuses an operation, such as an address in use, a thread or a socket. */
    PMNET_E_SYSTEM = -9,
    /* A defect of this library. The handle must only be closed. */
    PMNET_E_INTERNAL = -10
};

/* ---- Client ------------------------------------------------------------------------------------------------------ */

/* A client: the server's address, and the settings of sessions with it. */
typedef struct PMNet_client PMNet_client;
/* A session. Its requests are applied in the order in which they were sent. It sends and receives only during calls. */
typedef struct PMNet_session PMNet_session;

/*
 * Settings of a client. Set every field but `size` to zero; zero stands for the default. The size tells the library
 * which fields the caller knows, so that later versions can add fields.
 */
typedef struct PMNet_client_options {
    /* sizeof(PMNet_client_options). */
    size_t size;
    /* An address of this host, "HOST:PORT", or NULL: the kernel chooses. With a port, only one session can exist. */
    const char *bind;
    /* Largest IP packet of the path in bytes, from 576 to 65535. Default: 1500. */
    uint32_t mtu;
    /* Most update packets in flight, at most 4096. Default: 256. */
    uint32_t window;
    /* Most requests of a session that are queued or not waited for, at most 65536. Default: 1024. */
    uint32_t requests_max;
    /*
     * A session fails if it awaits an answer and nothing new arrives for this time, in milliseconds. What a device
     * acknowledges again is not new. Default: 30000.
     */
    uint32_t give_up_ms;
    /*
     * How long a call busy-polls for packets before it waits in the kernel, in microseconds; or PMNET_SPIN_ALWAYS.
     * The library shortens the time while polling finds nothing. A wake-up from the kernel takes longer than an
     * answer from a device: docs/results/pmnet. With a core to spare, 50 is a good value.
     */
    uint32_t spin;
    /* Must be zero. */
    uint32_t reserved;
    /*
     * Path of a file with the key that clients, devices and server share, or NULL. The file contains 32 hexadecimal
     * digits, and only its owner may read it. With a key, only packets that are sealed with it are accepted.
     */
    const char *key_file;
} PMNet_client_options;

/*
 * Creates a client of the server at `server`. Sends nothing.
 *
 * devices: number of devices in the chain to the server, 0 to 250. With 0 only the server makes updates durable.
 *          With more than there are, too. With fewer, an update that is reported as durable may be missing in the
 *          devices that were not counted.
 * options: settings, or NULL for the defaults.
 * client:  receives the handle. Close it with PMNet_client_close.
 *
 * PMNET_OK, PMNET_E_ARGUMENT.
 */
int PMNet_client_open(const char *server, uint32_t devices, const PMNet_client_options *options, PMNet_client **client);

/* Closes a client. Its sessions stay open until PMNet_end_session. NULL is ignored. */
void PMNet_client_close(PMNet_client *client);

/*
 * Table I: starts a session. Does not wait for the server; the first request does.
 *
 * session: receives the handle. End the session with PMNet_end_session.
 *
 * PMNET_OK, PMNET_E_ARGUMENT, PMNET_E_SYSTEM.
 */
int PMNet_start_session(PMNet_client *client, PMNet_session **session);

/*
 * Table I: sends an update and waits until it is durable. An update has no response. A request that needs one is a
 * bypass.
 *
 * request: `len` bytes; NULL is allowed if len is 0. At most as many bytes as fit into 1024 packets: 1.4 MB at the
 * default MTU.
 *
 * PMNET_OK: the update is durable. PMNET_E_ARGUMENT, PMNET_E_TOO_LARGE, PMNET_E_FULL, PMNET_E_EXHAUSTED,
 * PMNET_E_ENDED: it was not sent. PMNET_E_REFUSED, PMNET_E_NO_ANSWER, PMNET_E_SYSTEM: it may be durable or not; the
 * session is over.
 */
int PMNet_send_update(PMNet_session *session, const void *request, size_t len);

/*
 * Sends an update as PMNet_send_update does, but does not wait, so that several updates are in flight. PMNet_wait
 * waits.
 *
 * id: receives the update's number, for PMNet_wait.
 *
 * Results as of PMNet_send_update. PMNET_OK: the update is sent, or is queued and sent by later calls on this
 * session.
 */
int PMNet_queue_update(PMNet_session *session, const void *request, size_t len, uint64_t *id);

/*
 * Waits until a queued update is durable. Each update can be waited for once. Every earlier update is then durable,
 * too.
 *
 * PMNET_OK: durable. PMNET_E_MISUSE: no such update, or it was already waited for. Otherwise as PMNet_send_update.
 */
int PMNet_wait(PMNet_session *session, uint64_t id);

/*
 * Table I: has the server execute a request after all earlier ones of this session, and waits for its response. The
 * network does not log it: after PMNET_E_NO_ANSWER and similar errors the request may have been executed once, or
 * not.
 *
 * request:      as for PMNet_send_update.
 * response:     receives a pointer to the response. It belongs to the session, and is valid until the next
 *               PMNet_bypass on the session or until the session's end. Not NULL, even if the response is empty.
 * response_len: receives the length of the response in bytes.
 *
 * Results as of PMNet_send_update.
 */
int PMNet_bypass(PMNet_session *session, const void *request, size_t len, const uint8_t **response, size_t *response_len);

/*
 * Table I: ends a session. Waits at most one second until the server has applied every update. The handle is invalid
 * afterwards, whatever the result.
 *
 * PMNET_OK: every update is applied. PMNET_E_NO_ANSWER: the server is down or slow; durable updates stay durable,
 * and will be applied. PMNET_E_ARGUMENT, PMNET_E_REFUSED, PMNET_E_SYSTEM, PMNET_E_INTERNAL.
 */
int PMNet_end_session(PMNet_session *session);

/* ---- Server ------------------------------------------------------------------------------------------------------ */

/*
 * A server: a socket, and a thread of the library that serves it.
 *
 * EXACTLY ONCE is the work of the application and the library together. Each request comes with the row of its
 * session: 48 bytes that say how far the session has been applied. The application commits the effects of the
 * request AND the row, under the session's key, in one transaction: both are durable, or neither is. Then it answers
 * the request, and only then does the library inform network and client. When the server starts again, the
 * application passes all rows to the library, which then knows what has been applied and what must be sent again.
 *
 * BATCHES. Requests come in batches: a batch contains the requests that arrived while the last batch was being
 * committed. Answers are sent, and the next batch begins, when every request of the batch is answered. So one commit
 * can and should cover a batch: receive requests until `behind` is 0, commit, answer. A thread that waits in
 * PMNet_recv for more requests before it answers those that it has waits in vain.
 */
typedef struct PMNet_server PMNet_server;

/* Kinds of requests, and how to answer each. */
enum {
    /* Apply `bytes` and commit the effects together with the row. Then call PMNet_ack. */
    PMNET_UPDATE = 1,
    /*
     * Execute `bytes` after all earlier requests of the session. Then call PMNet_respond. If the request changes
     * anything, commit its effects together with the row. Otherwise the row need not be committed.
     */
    PMNET_BYPASS = 2,
    /* A session begins or ends. Delete the evicted rows and commit the row, in one transaction. Then call PMNet_ack. */
    PMNET_ROW = 3
};

/*
 * A request. It belongs to the library, and is valid until it is answered or its server is closed. Later versions of
 * the library may return longer structures.
 */
typedef struct PMNet_request {
    /* Names the request in PMNet_ack, PMNet_respond and PMNet_fail. Unique for a server handle. */
    uint64_t id;
    /* PMNET_UPDATE, PMNET_BYPASS or PMNET_ROW. */
    uint32_t kind;
    /*
     * Not zero: the bypass must not be executed, because it may have been executed before the server started, and
     * its response is lost. Respond in the application's own protocol that the reply is lost.
     */
    uint32_t lost;
    /* The request of the client; not NULL. Empty for PMNET_ROW. */
    const uint8_t *bytes;
    size_t len;
    /* The session's key: PMNET_KEY_BYTES bytes. The row replaces any row that is stored under this key. */
    const uint8_t *key;
    /* The row to store: PMNET_ROW_BYTES bytes. It contains the key, too (docs/format/pmnet.md). */
    const uint8_t *row;
    /* Keys of rows to delete: `evicted_count` times PMNET_KEY_BYTES. For PMNET_ROW only. */
    const uint8_t *evicted;
    size_t evicted_count;
    /* A number to store with the rows. The server has one; it replaces the previous one and never falls. */
    uint32_t floor;
    /* How many more requests of the batch PMNet_recv can return. Another thread may already have taken them. */
    uint32_t behind;
} PMNet_request;

/* Settings of a server. Set and read as PMNet_client_options. */
typedef struct PMNet_server_options {
    /* sizeof(PMNet_server_options). */
    size_t size;
    /* All stored rows in any order: `rows_count` times PMNET_ROW_BYTES. A new server has none. */
    const uint8_t *rows;
    size_t rows_count;
    /* The stored floor, at most 2^30; 0 for a new server. */
    uint32_t floor;
    /* Largest IP packet of the path in bytes, from 576 to 65535. Default: 1500. */
    uint32_t mtu;
    /* Most sessions whose rows are kept, including sessions that have ended. Default: 65536. */
    uint32_t sessions_max;
    /* Most requests in a batch, at most 4096. Default: 64. */
    uint32_t batch_max;
    /* Not zero: also accept sessions of the PMNet authors' clients, which begin without a session start. */
    uint32_t foreign;
    /*
     * How long the server's thread busy-polls for packets before it waits in the kernel, in microseconds; or
     * PMNET_SPIN_ALWAYS. The library shortens the time while polling finds nothing. A wake-up from the kernel takes
     * longer than an answer from a device: docs/results/pmnet. With a core to spare, 50 is a good value.
     */
    uint32_t spin;
    /*
     * Path of a file with the key that clients, devices and server share, or NULL. The file contains 32 hexadecimal
     * digits, and only its owner may read it. With a key, only packets that are sealed with it are accepted.
     */
    const char *key_file;
    /*
     * Ends the sessions of clients that are gone. Without it such sessions stay for ever, and at `sessions_max` new
     * ones are refused. A session of which nothing was heard for this time, in seconds from 4 to 262140, ends once
     * every device has said that it holds nothing of it: the application gets a PMNET_ROW. Where there is no room for
     * a new session, half of the time is enough. Default: never.
     *
     * Clients are heard only while their program is in a call on the session. A client that comes back after its
     * session has ended gets PMNET_E_REFUSED, and starts another one. Clients that have not heard from the server for
     * a quarter of the time do not believe devices until they have.
     */
    uint32_t silence_seconds;
    /*
     * The number of devices between clients and server, from 1 to 250, or PMNET_NO_DEVICES. Must be set together with
     * `silence_seconds`. With a number that is too low, durable updates may be lost.
     */
    uint32_t silence_devices;
} PMNet_server_options;

/*
 * Starts a server. Requests can arrive as soon as this returns.
 *
 * listen:  the server's address. With port 0 the kernel chooses a port. On a host with several addresses, name one:
 *          answers must come from the address to which clients send.
 * options: rows, floor and settings, or NULL for a new server. If stored rows are missing, exactly once is lost.
 * server:  receives the handle. Close it with PMNet_server_close.
 *
 * PMNET_OK, PMNET_E_ARGUMENT, PMNET_E_SYSTEM.
 */
int PMNet_server_open(const char *listen, const PMNet_server_options *options, PMNet_server **server);

/* The address on which the server listens, "HOST:PORT". Valid as long as the handle. NULL if server is NULL. */
const char *PMNet_server_address(const PMNet_server *server);

/*
 * Table I: the next request. The requests of a session come in order, and must be committed in this order. Several
 * may be committed together.
 *
 * timeout_ms: longest wait in milliseconds; 0: do not wait; negative: no limit.
 * request:    receives a pointer to the request.
 *
 * PMNET_OK. PMNET_AGAIN: no request came. PMNET_E_ARGUMENT. PMNET_E_SYSTEM: the server has ended; close it.
 */
int PMNet_recv(PMNet_server *server, int timeout_ms, const PMNet_request **request);

/*
 * Table I: an update or a row is committed. The acknowledgement is sent with its batch, and the devices delete the
 * update.
 *
 * PMNET_OK. PMNET_E_MISUSE: the request is a bypass, or does not wait for an answer, or follows one of its session
 * that has failed.
 */
int PMNet_ack(PMNet_server *server, uint64_t id);

/*
 * A bypass is executed. Its response must show only committed state.
 *
 * response: `len` bytes; NULL is allowed if len is 0. At most 1 GiB.
 * changed:  not zero if the bypass has changed something, and its row is committed with that.
 *
 * PMNET_OK. PMNET_E_MISUSE: not a bypass, or as for PMNet_ack. PMNET_E_TOO_LARGE: not answered; pass a shorter
 * response.
 */
int PMNet_respond(PMNet_server *server, uint64_t id, const void *response, size_t len, int changed);

/*
 * Nothing was committed of a request and of the later requests of its session, and nothing will be. They will be
 * handed out again. Later requests of the session that PMNet_recv has returned must be failed, too; those that it
 * has not returned fail automatically. If it is not known what is committed, close the server, and open it again
 * with the stored rows.
 *
 * PMNET_OK. PMNET_E_MISUSE: the request does not wait for an answer, or a later one of its session has been
 * answered.
 */
int PMNet_fail(PMNet_server *server, uint64_t id);

/*
 * Stops a server within about 100 ms, and frees it with all its requests. Requests that are not answered are handed
 * out by the next server that is started with the stored rows. NULL is ignored.
 */
void PMNet_server_close(PMNet_server *server);

/* ---- Both -------------------------------------------------------------------------------------------------------- */

/*
 * A message for the last call on this thread that returned an error, in English. It is valid until the next error on
 * this thread. Never NULL; empty if there was no error.
 */
const char *PMNet_last_error(void);

/* The name of a result, such as "PMNET_E_SYSTEM"; "unknown" for other numbers. Valid until the process ends. */
const char *PMNet_result_name(int result);

/* The library's version, like PMNET_VERSION. Valid until the process ends. */
const char *PMNet_version(void);

#ifdef __cplusplus
}
#endif

#endif
