//! Helpers for the tests: both side-cars, each in a thread.

#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

use super::{Client, LIMIT};
use landfall_pmnet_io::redis::client::{self, SidecarConfig, SidecarReport};
use landfall_pmnet_io::redis::server::{self, ServerSideConfig, ServerSideReports};
use landfall_pmnet_io::runtime::{Published, RuntimeError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(began.elapsed() < LIMIT, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A side-car in a thread. It is stopped when this value is dropped.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(run: impl FnOnce(Arc<AtomicBool>) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        Self { stop, thread: Some(std::thread::spawn(move || run(stopping))) }
    }

    pub fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub struct Sidecars {
    _client: Running,
    pub server: Running,
    pub config: ServerSideConfig,
    pub reports: Arc<ServerSideReports>,
    pub report: Arc<Published<SidecarReport>>,
    pub address: SocketAddr,
}

impl Sidecars {
    pub fn start(redis: SocketAddr) -> Self {
        Self::start_with(redis, |_| {}, |_| {})
    }

    pub fn start_with(
        redis: SocketAddr,
        change_server: impl FnOnce(&mut ServerSideConfig),
        change_client: impl FnOnce(&mut SidecarConfig),
    ) -> Self {
        let reports = Arc::new(ServerSideReports::default());
        let mut config = ServerSideConfig::new(anywhere(), redis);
        config.reply_limit = Duration::from_secs(2);
        change_server(&mut config);
        let server = start_server(&config, &reports);
        let listens = until("the server's start", || reports.network.get().listens);
        config.options.listen = listens;
        let report = Arc::new(Published::default());
        let mut client_config = SidecarConfig::new(anywhere(), listens);
        change_client(&mut client_config);
        let published = report.clone();
        let client = Running::start(move |stop| client::run(client_config, published, stop).unwrap());
        let address = until("the client's start", || report.get().listens);
        Self { _client: client, server, config, reports, report, address }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Ends the server's side-car and starts another at the same address.
    pub fn restart_server(&mut self) {
        self.stop_server();
        self.start_server();
    }

    pub fn stop_server(&mut self) {
        self.server.end();
    }

    pub fn start_server(&mut self) {
        self.server = start_server(&self.config, &self.reports);
    }
}

pub fn start_server(config: &ServerSideConfig, reports: &Arc<ServerSideReports>) -> Running {
    let (config, reports) = (config.clone(), reports.clone());
    Running::start(move |stop| {
        // Between fork and exec, a program that another test starts has a copy of the socket at this address.
        let outcome = until("its address to be free", || {
            let outcome = server::run(config.clone(), reports.clone(), stop.clone());
            (!matches!(outcome, Err(RuntimeError::Bind { .. }))).then_some(outcome)
        });
        outcome.unwrap();
    })
}
