//! The HTTP/1.1 service.
//!
//! Read [`HttpSession`] first: the state of one connection. All code runs on the worker's thread, and nothing blocks.
//!
//! # Resources
//!
//! | resource | methods | what it does |
//! |---|---|---|
//! | `/kv/{key}` | `PUT`, `POST` | stores the body: 201 if the key is new, 204 if it replaces a value |
//! | | `GET`, `HEAD` | the value: 200, or 404 |
//! | | `DELETE` | 204, or 404 |
//! | `/kv` | `GET`, `HEAD` | a range of keys, streamed |
//! | `/wal/{log}` and below, `/wal` | | logs: see below |
//! | `/metrics` | `GET`, `HEAD` | Prometheus text, version 0.0.4 |
//! | `/healthz` | `GET`, `HEAD` | 200, or 503 once the region is closed for writing; needs no password |
//! | `/` | `GET`, `HEAD` | a short help |
//!
//! A key is the percent-decoded rest of the path, with its slashes; the empty key is valid. `?db=N` selects a database
//! from 0 to 15. `OPTIONS` returns the methods of a resource. The body of an error is one line that says what to do.
//!
//! The `ETag` is the version's sequence number in quotes, in a chain mixed with a number of the server's own.
//! `If-Match`, `If-None-Match`, `If-Modified-Since` and `If-Unmodified-Since` are supported (RFC 9110, section 13).
//! `X-Landfall-TTL` sets a time to live as `90` (seconds), `90s` or `1500ms`; a reply has the remaining time in
//! milliseconds, `1499ms`.
//!
//! # Scans
//!
//! `GET /kv?start=&end=&prefix=&limit=&reverse=&keys_only=&format=&db=` visits the keys from `start` to before `end` in
//! byte order, or in descending order with `reverse`. Bounds are percent-encoded bytes. A scan is not a snapshot: a
//! page of keys is consistent, but keys written between two pages may be missing. The body is chunked (for HTTP/1.0 it
//! ends with the connection), in one of two layouts:
//!
//! - `format=octets`, the default, `application/octet-stream`. For each key: the key's length in decimal, a
//!   blank, the value's length in decimal, LF, the key's bytes, the value's bytes, LF. Large values are sent
//!   from where they lie. With `keys_only` the blank and everything of the value are left out: length, LF, key, LF.
//! - `format=ndjson`, or `Accept: application/x-ndjson`. For each key a line `{"key":"…","value":"…"}`; what is
//!   not UTF-8 is in Base64 under `key64` or `value64`. With `keys_only` there is no value. This copies values,
//!   which is counted.
//!
//! A value that fails its checksum is never sent. In the octets layout the word `damaged` replaces its length, and none
//! of its bytes follow; in lines an `"error"` replaces the value. If a scan cannot continue, the connection is closed
//! without the last chunk.
//!
//! # Logs
//!
//! | resource | methods | what it does |
//! |---|---|---|
//! | `/wal/{log}` | `POST` | appends the body as one entry: 201, `{"offset":N,"count":1}` |
//! | | `GET`, `HEAD` | entries: `?from=&limit=&bytes=&wait=&format=` |
//! | | `DELETE` | with `?before=N` trims entries below it, without ends the log |
//! | `/wal/{log}/{offset}` | `GET`, `HEAD` | one entry |
//! | `/wal/{log}/consumers` | `GET` | every position, a JSON object a line |
//! | `/wal/{log}/consumers/{name}` | `GET`, `PUT`, `DELETE` | one: a decimal offset |
//! | `/wal/{log}/config` | `GET`, `PUT` | what is kept: `?bytes=&entries=&ms=`, 0 for everything |
//! | `/wal` | `GET` | logs in order, a JSON object a line; `?after=&limit=` |
//!
//! The first append creates a log. With `Content-Type: application/x-landfall-batch` the body is a *batch*: for each
//! entry its length, 4 bytes little-endian, and its bytes; the entries are appended as a group. A read returns a batch,
//! sent from the entries' frames, or lines of JSON as for a scan (`format=ndjson`, or `Accept`). `from` is an offset,
//! `first` (the default) or `end`. With `wait` (milliseconds), a read that finds no entry is answered when there is
//! one, or with 204. `X-Landfall-Offset` is the offset of the first entry appended or read, `X-Landfall-Next` the
//! offset to continue at, and `X-Landfall-First` and `X-Landfall-End` are the log's current bounds.
//!
//! # Durability before replies
//!
//! A reply to a write is sent only after the write is durable. A reply to a read is sent only after everything that it
//! shows, present or absent, is durable: see [`Gated`](landfall_heap::Gated).

mod answer;
mod auth;
mod base64;
mod conditions;
mod dates;
mod metrics;
mod params;
mod ranges;
mod resource;
mod route;
mod scan;
mod values;
mod wal;

pub use values::AwaitedBody;

use crate::chain;
use crate::context::{Context, Outcome};
use crate::counters::count;
use crate::reply::Reply;
use crate::shared::Shared;
use answer::{Answer, Failure, Refusal, TEXT};
use dates::Dates;
use landfall_http::{Connection, HttpError, Method, Request, ResponseWriter, format_date};
use landfall_media::Chain;
use route::Route;
use scan::Scan;

/// The answer to `GET /`.
const HELP: &[u8] = b"landfall: durable network storage
PUT /kv/{key}      store the body; X-Landfall-TTL: 90s, If-Match, If-None-Match
GET /kv/{key}      read it; HEAD, DELETE
GET /kv            scan: ?start=&end=&prefix=&limit=&reverse=&keys_only=&format=octets|ndjson
POST /wal/{log}    append to a log; GET ?from=&limit=&wait=MS, GET /wal/{log}/{offset}, DELETE ?before=
GET /wal           logs
GET /metrics       Prometheus text
GET /healthz       200 while the region takes writes
Keys are percent-encoded; ?db=N chooses a database.
";

/// State of one connection.
#[derive(Debug)]
pub struct HttpSession {
    dates: Dates,
    /// The scan that is being streamed.
    scan: Option<Scan>,
    /// The reply ends where the connection does, and not all of it is written.
    is_cut_short: bool,
    /// Bytes at which a page of a scan ends.
    page_bytes: usize,
    needs_password: bool,
    /// Time of the last request that had the password where one is asked for, as [`Context::steady_ms`].
    proved_ms: Option<u64>,
}

impl HttpSession {
    /// The state of a new connection.
    pub fn new(shared: &Shared) -> Self {
        Self {
            dates: Dates::default(),
            scan: None,
            is_cut_short: false,
            page_bytes: scan::page_bytes(&shared.config),
            needs_password: shared.config.password.is_some(),
            proved_ms: None,
        }
    }

    /// Time of the last request that had the password, as [`Context::steady_ms`]; `None`: none had it.
    pub(crate) fn proved_ms(&self) -> Option<u64> {
        self.proved_ms
    }

    /// True if each request must have a password.
    pub(crate) fn needs_password(&self) -> bool {
        self.needs_password
    }

    /// Executes a request whose body, if any, lies in `chain`.
    ///
    /// After [`Outcome::Wait`] nothing has changed and the reply is empty: the caller executes the request again after
    /// the wait. While [`Self::is_streaming`], the caller calls [`Self::pump`] before the next request.
    pub fn execute(
        &mut self,
        ctx: &mut Context<'_>,
        request: &Request,
        chain: &Chain<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        match self.answer(ctx, request, chain, reply) {
            Ok(()) => {}
            Err(Failure::Wait(until)) => {
                reply.rewind();
                return Outcome::Wait(until);
            }
            Err(Failure::Tail(tail)) => {
                reply.rewind();
                return Outcome::Tail(tail);
            }
            Err(Failure::Refused(refusal)) => {
                reply.rewind();
                let connection = request.connection();
                self.refuse(ctx, request, connection, &refusal, reply);
            }
        }
        count(&ctx.shared.counters.http_requests, 1);
        // A connection that streams is closed, if necessary, after the stream.
        if request.keep_alive || self.is_streaming() { Outcome::Done } else { Outcome::Close }
    }

    /// Decides by the head of a request whether to accept its body, which has not arrived completely: by path,
    /// password, method, length and room. If not, the refusal is written to `reply`, and the connection must be closed
    /// after it, unless the body can be skipped.
    pub fn accepts_body(
        &mut self,
        ctx: &mut Context<'_>,
        head: &Request,
        body: AwaitedBody,
        reply: &mut Reply<'_>,
    ) -> bool {
        let accepted = admit(ctx, head).and_then(|route| {
            // Who sends a body counts as authenticated, also where no password is asked for.
            if route.is_open() {
                auth::check(head, ctx.shared.config.password.as_deref())?;
            }
            values::accepts_body(ctx, &route, head, body)
        });
        match accepted {
            Ok(()) => {
                self.proved_ms = Some(ctx.steady_ms);
                true
            }
            Err(refusal) => {
                let connection = if body.passes { head.connection() } else { Connection::Close };
                self.refuse(ctx, head, connection, &refusal, reply);
                count(&ctx.shared.counters.http_requests, 1);
                false
            }
        }
    }

    /// True while a scan is being streamed.
    pub fn is_streaming(&self) -> bool {
        self.scan.is_some()
    }

    /// True if the client would take the end of the connection for the end of a reply, of which something is missing.
    pub fn is_cut_short(&self) -> bool {
        self.is_cut_short || self.scan.as_ref().is_some_and(|scan| !scan.is_chunked())
    }

    /// Appends the next page of the streamed scan, or the end of the stream. A page may be empty.
    ///
    /// After [`Outcome::Wait`] nothing has changed: the caller calls again after the wait.
    pub fn pump(&mut self, ctx: &mut Context<'_>, reply: &mut Reply<'_>) -> Outcome {
        let Some(scan) = &mut self.scan else { return Outcome::Done };
        match scan.page(ctx, reply) {
            Ok(true) => Outcome::Done,
            Ok(false) => {
                let keep_alive = scan.keep_alive;
                self.scan = None;
                if keep_alive { Outcome::Done } else { Outcome::Close }
            }
            Err(Failure::Wait(until)) => {
                reply.rewind();
                Outcome::Wait(until)
            }
            Err(Failure::Tail(tail)) => {
                reply.rewind();
                Outcome::Tail(tail)
            }
            Err(Failure::Refused(refusal)) => {
                // The head has been written: only an end without the last chunk, or a reset, can report that data are
                // missing.
                reply.rewind();
                self.is_cut_short = !scan.is_chunked();
                tracing::error!(reason = %refusal.message, "a scan was cut short");
                count(&ctx.shared.counters.errors, 1);
                self.scan = None;
                Outcome::Close
            }
        }
    }

    /// Writes the reply to a request that cannot be parsed; the connection must be closed after it.
    pub fn bad_request(&self, error: &HttpError, now_ms: u64, reply: &mut Reply<'_>) {
        ResponseWriter::new(reply.bytes()).error(error, &format_date(now_ms / 1000));
    }

    fn answer(
        &mut self,
        ctx: &mut Context<'_>,
        request: &Request,
        chain: &Chain<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        let route = admit(ctx, request)?;
        if !route.is_open() {
            self.proved_ms = Some(ctx.steady_ms);
        }
        let is_head = request.method == Method::Head;
        let (dates, now_ms, connection) = (&mut self.dates, ctx.now_ms, request.connection());
        let mut answer = Answer { reply, dates, now_ms, connection, is_head };
        match (route, &request.method) {
            (route, Method::Options) => options(&mut answer, &route),
            (Route::Key(key), Method::Put | Method::Post) => {
                values::put(ctx, request, chain, &key, &mut answer)?;
            }
            (Route::Key(key), Method::Delete) => values::delete(ctx, request, &key, &mut answer)?,
            (Route::Key(key), _) => values::get(ctx, request, &key, &mut answer)?,
            (Route::Scan, _) => self.scan = scan::begin(ctx, request, self.page_bytes, &mut answer)?,
            (Route::Wal(resource), _) => wal::answer(ctx, request, chain, &resource, &mut answer)?,
            (Route::Metrics, _) => {
                answer.body(200, landfall_metrics::CONTENT_TYPE.as_bytes(), metrics::text(ctx).as_bytes())
            }
            (Route::Health, _) => health(ctx, request, &mut answer)?,
            (Route::Help | Route::Server, _) => answer.body(200, TEXT, HELP),
        }
        Ok(())
    }

    fn refuse(
        &mut self,
        ctx: &Context<'_>,
        request: &Request,
        connection: Connection,
        refusal: &Refusal,
        reply: &mut Reply<'_>,
    ) {
        if refusal.is_error() {
            count(&ctx.shared.counters.errors, 1);
        }
        let is_head = request.method == Method::Head;
        Answer { reply, dates: &mut self.dates, now_ms: ctx.now_ms, connection, is_head }.refuse(refusal);
    }
}

/// Checks a request by path, password and method.
fn admit<'a>(ctx: &Context<'_>, request: &'a Request) -> Result<Route<'a>, Refusal> {
    let route = route::find(request.path());
    if !route.as_ref().is_ok_and(Route::is_open) {
        auth::check(request, ctx.shared.config.password.as_deref())?;
    }
    let route = route?;
    route.check(&request.method)?;
    check_site(request)?;
    admit_here(ctx.shared, &route, &request.method)?;
    Ok(route)
}

/// Refuses what a page of another site has a browser send, which needs no consent of the server and may bring a password
/// that the browser has: it could write, though not read (Fetch Metadata Request Headers, W3C; RFC 6454).
fn check_site(request: &Request) -> Result<(), Refusal> {
    let changes = matches!(request.method, Method::Put | Method::Post | Method::Delete);
    if changes && is_of_another_site(request) {
        return Err(Refusal::new(
            403,
            "a page of another site may not write here; a proxy in front has to pass the Host of requests on",
        ));
    }
    Ok(())
}

/// Browsers say by `Sec-Fetch-Site` whether the page is of another site, but only to servers whose connection they trust;
/// to others they say the page's origin.
fn is_of_another_site(request: &Request) -> bool {
    match (request.header("sec-fetch-site"), request.header("origin")) {
        (Some(site), _) => site.eq_ignore_ascii_case(b"cross-site"),
        (None, Some(origin)) => {
            let at = origin.windows(3).position(|bytes| bytes == b"://").map(|at| at + 3);
            let authority = at.map(|at| &origin[at..]);
            !authority
                .is_some_and(|own| request.header("host").is_some_and(|host| host.eq_ignore_ascii_case(own)))
        }
        (None, None) => false,
    }
}

/// Checks that this node of a chain, if it is one, may execute a request.
fn admit_here(shared: &Shared, route: &Route<'_>, method: &Method) -> Result<(), Refusal> {
    let writes = matches!(method, Method::Put | Method::Post | Method::Delete);
    let admitted = match route {
        Route::Key(_) | Route::Scan | Route::Wal(_) => chain::admit(shared, writes),
        _ => Ok(()),
    };
    admitted.map_err(|why| Refusal::new(why.status(), why.text()))
}

fn options(answer: &mut Answer<'_, '_>, route: &Route<'_>) {
    let mut writer = answer.status(204);
    writer.header("Allow", route.allow().as_bytes());
    writer.no_body();
}

fn health(ctx: &Context<'_>, request: &Request, answer: &mut Answer<'_, '_>) -> Result<(), Refusal> {
    params::health(request.query())?;
    match ctx.engine.heap().media().closed() {
        None => answer.body(200, TEXT, b"ok\n"),
        Some(reason) => {
            return Err(Refusal::new(
                503,
                format!("closed for writing: {reason}; check the device, then restart"),
            ));
        }
    }
    Ok(())
}
