//! A durable service over UDP: named counters. The devices of the network acknowledge updates (`add NAME N`); without
//! devices, the server does. The server answers queries (`get NAME`).
//!
//! ```text
//! cargo run -p landfall-pmnet-io --example udp_service -- serve 127.0.0.1:51001 counters.journal
//! cargo run -p landfall-pmnet-io --example udp_service -- add 127.0.0.1:51001 apples 3
//! cargo run -p landfall-pmnet-io --example udp_service -- get 127.0.0.1:51001 apples
//! ```

use landfall_pmnet_io::generic::{Durable, Service};
use landfall_pmnet_io::runtime::{ServerOptions, Session, SessionOptions, serve};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Default)]
struct Counters {
    counts: BTreeMap<String, i64>,
}

impl Service for Counters {
    fn changes(&self, request: &[u8]) -> bool {
        request.starts_with(b"add ")
    }

    fn request(&mut self, request: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(request);
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["add", name, n] => {
                let count = self.counts.entry(name.to_owned()).or_default();
                *count = count.saturating_add(n.parse().unwrap_or(0));
                count.to_string().into_bytes()
            }
            ["get", name] => self.counts.get(name).copied().unwrap_or(0).to_string().into_bytes(),
            _ => b"what?".to_vec(),
        }
    }

    fn save(&self) -> Vec<u8> {
        let lines = self.counts.iter().map(|(name, count)| format!("{name} {count}\n"));
        lines.collect::<String>().into_bytes()
    }

    fn restore(&mut self, state: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(state) else { return false };
        let line = |line: &str| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        let counts: Option<BTreeMap<String, i64>> = text.lines().map(line).collect();
        let good = counts.is_some();
        self.counts = counts.unwrap_or_default();
        good
    }
}

#[expect(clippy::print_stdout, reason = "a command-line example prints its results")]
fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", listen, path] => {
            let mut service = Durable::new(Counters::default(), path.into());
            let stop = AtomicBool::new(false);
            serve(ServerOptions::new(listen.parse()?), &mut service, Arc::default(), &stop)?;
        }
        ["add", server, name, n] => {
            let mut session = Session::start(SessionOptions::new(server.parse()?))?;
            session.update(format!("add {name} {n}").as_bytes())?;
            println!("durable");
            session.end()?;
        }
        ["get", server, name] => {
            let mut session = Session::start(SessionOptions::new(server.parse()?))?;
            println!("{}", String::from_utf8_lossy(&session.bypass(format!("get {name}").as_bytes())?));
            session.end()?;
        }
        _ => println!("usage: udp_service serve ADDRESS FILE | add SERVER NAME N | get SERVER NAME"),
    }
    Ok(())
}
