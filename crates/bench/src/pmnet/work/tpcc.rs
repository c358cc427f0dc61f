//! New-order and payment of TPC-C over Redis, in TPC-C's proportion (45 to 43), with a lock for each district (Figure
//! 5 of the paper).
//!
//! Locks are `SET NX` and `DEL`. They are bypasses, because only the server knows who was first. The reads of a
//! transaction are bypasses, its writes are updates. There are fewer customers and items than the standard asks for,
//! and no think times.

use super::twitter::{command, strange};
use super::{Ask, Workload, resp};
use crate::common::clients::Random;
use crate::common::error::BenchError;
use std::collections::VecDeque;

const WAREHOUSES: u64 = 4;
const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 100;
const ITEMS: u64 = 1000;
/// Lines of an order: the fewest, and how many more.
const LINES: (u64, u64) = (5, 11);
/// The number of new orders in 88 transactions that write.
const NEW_ORDERS: (u64, u64) = (45, 88);
/// A lock whose owner is gone is free after this, milliseconds.
const LOCK_MS: &str = "10000";
/// Stock is filled up below this (TPC-C 2.4.2.2).
const STOCK_MIN: i64 = 10;
const STOCK_MORE: i64 = 91;

/// What the next reply is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Nothing,
    /// Whether the lock is ours.
    Lock {
        order: bool,
    },
    /// The next order's number.
    Number,
    /// The stock of the line's item.
    Stock,
}

/// A terminal.
#[derive(Debug)]
pub(super) struct Tpcc {
    random: Random,
    updates: u32,
    terminal: u64,
    stage: Stage,
    queue: VecDeque<Ask>,
    /// `warehouse:district`.
    place: String,
    warehouse: u64,
    order: i64,
    items: Vec<u64>,
    stock: Vec<i64>,
}

impl Tpcc {
    pub(super) fn new(updates: u32, terminal: u64, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            updates,
            terminal,
            stage: Stage::Nothing,
            queue: VecDeque::new(),
            place: String::new(),
            warehouse: 0,
            order: 0,
            items: Vec::new(),
            stock: Vec::new(),
        }
    }

    fn queue(&mut self, update: bool, words: &[&str]) {
        self.queue.push_back(command(update, words));
    }

    fn begin(&mut self) {
        self.warehouse = self.random.below(WAREHOUSES);
        self.place = format!("{}:{}", self.warehouse, self.random.below(DISTRICTS));
        if self.random.below(100) >= u64::from(self.updates) {
            return self.order_status();
        }
        let order = self.random.below(NEW_ORDERS.1) < NEW_ORDERS.0;
        self.lock(order);
    }

    fn lock(&mut self, order: bool) {
        let (key, token) = (format!("lock:{}", self.place), self.terminal.to_string());
        self.queue(false, &["SET", &key, &token, "NX", "PX", LOCK_MS]);
        self.stage = Stage::Lock { order };
    }

    /// After everything that the lock protects: the session's order sees to that.
    fn unlock(&mut self) {
        let key = format!("lock:{}", self.place);
        self.queue(false, &["DEL", &key]);
        self.queue.iter_mut().last().into_iter().for_each(|ask| ask.ends = true);
        self.stage = Stage::Nothing;
    }

    fn order_status(&mut self) {
        let customer = self.random.below(CUSTOMERS);
        let place = self.place.clone();
        self.queue(false, &["HGETALL", &format!("c:{place}:{customer}")]);
        self.queue(false, &["LRANGE", &format!("no:{place}"), "-1", "-1"]);
        self.queue(false, &["HGET", &format!("d:{place}"), "next"]);
        self.queue.iter_mut().last().into_iter().for_each(|ask| ask.ends = true);
    }

    fn payment(&mut self) {
        let (place, warehouse) = (self.place.clone(), self.warehouse);
        let customer = format!("c:{place}:{}", self.random.below(CUSTOMERS));
        let amount = (1 + self.random.below(5000)).to_string();
        self.queue(true, &["HINCRBY", &format!("w:{warehouse}"), "ytd", &amount]);
        self.queue(true, &["HINCRBY", &format!("d:{place}"), "ytd", &amount]);
        self.queue(true, &["HINCRBY", &customer, "balance", &format!("-{amount}")]);
        self.queue(true, &["HINCRBY", &customer, "payments", "1"]);
        self.queue(true, &["RPUSH", &format!("h:{warehouse}"), &format!("{customer} {amount}")]);
        self.unlock();
    }

    /// Reads the stock of the next line's item, or writes the order.
    fn next_line(&mut self) {
        if let Some(item) = self.items.get(self.stock.len()).copied() {
            let key = format!("s:{}:{item}", self.warehouse);
            self.queue(false, &["HGET", &key, "quantity"]);
            self.stage = Stage::Stock;
            return;
        }
        let (place, order, lines) = (self.place.clone(), self.order.to_string(), self.items.len());
        let customer = self.random.below(CUSTOMERS).to_string();
        self.queue(true, &["HINCRBY", &format!("d:{place}"), "next", "1"]);
        let words =
            ["HSET", &format!("o:{place}:{order}"), "customer", &customer, "lines", &lines.to_string()];
        self.queue(true, &words);
        self.queue(true, &["RPUSH", &format!("no:{place}"), &order]);
        for line in 0..lines {
            let (item, wanted) = (self.items[line], 1 + self.random.below(10));
            let left = left_of(self.stock[line], wanted).to_string();
            self.queue(true, &["HSET", &format!("s:{}:{item}", self.warehouse), "quantity", &left]);
            let key = format!("ol:{place}:{order}:{line}");
            self.queue(true, &["HSET", &key, "item", &item.to_string(), "quantity", &wanted.to_string()]);
        }
        self.unlock();
    }

    fn go_on(&mut self, reply: &[u8]) -> Result<(), BenchError> {
        match self.stage {
            Stage::Nothing => self.begin(),
            Stage::Lock { order } if !reply.starts_with(b"+OK") => self.lock(order),
            Stage::Lock { order: false } => self.payment(),
            Stage::Lock { order: true } => {
                let place = self.place.clone();
                self.queue(false, &["HGET", &format!("d:{place}"), "next"]);
                self.stage = Stage::Number;
            }
            Stage::Number => {
                self.order = resp::integer(reply).ok_or_else(|| strange(reply, "an order's number"))?;
                let lines = LINES.0 + self.random.below(LINES.1);
                self.items = (0..lines).map(|_| self.random.below(ITEMS)).collect();
                // An item that occurs twice would be read before it is written.
                self.items.sort_unstable();
                self.items.dedup();
                self.stock.clear();
                self.next_line();
            }
            Stage::Stock => {
                self.stock.push(resp::integer(reply).ok_or_else(|| strange(reply, "a quantity"))?);
                self.next_line();
            }
        }
        Ok(())
    }
}

/// Returns the stock of an item after an order (TPC-C 2.4.2.2).
fn left_of(stock: i64, wanted: u64) -> i64 {
    let left = stock - i64::try_from(wanted).unwrap_or(0);
    if left >= STOCK_MIN { left } else { left + STOCK_MORE }
}

impl Workload for Tpcc {
    fn next(&mut self, reply: &[u8], ask: &mut Ask) -> Result<(), BenchError> {
        if resp::is_error(reply) {
            return Err(strange(reply, "a result"));
        }
        if self.queue.is_empty() {
            self.go_on(reply)?;
        }
        self.queue.pop_front().into_iter().for_each(|next| *ask = next);
        Ok(())
    }
}

/// Warehouses, districts and stock; customers begin with their first payment.
pub(super) fn fill() -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    let mut put = |words: &[&str]| requests.push(command(true, words).bytes);
    for warehouse in 0..WAREHOUSES {
        put(&["HSET", &format!("w:{warehouse}"), "ytd", "0"]);
        for district in 0..DISTRICTS {
            put(&["HSET", &format!("d:{warehouse}:{district}"), "next", "1", "ytd", "0"]);
        }
        for item in 0..ITEMS {
            put(&["HSET", &format!("s:{warehouse}:{item}"), "quantity", "50"]);
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Plays a server that knows locks and numbers; counts commands.
    fn play(work: &mut Tpcc, transactions: u32) -> BTreeMap<String, u32> {
        let (mut counts, mut ask, mut reply, mut done) = (BTreeMap::new(), Ask::default(), Vec::new(), 0);
        let mut refused = false;
        while done < transactions {
            work.next(&reply, &mut ask).unwrap();
            done += u32::from(ask.ends);
            let text = String::from_utf8_lossy(&ask.bytes).into_owned();
            let parts: Vec<&str> = text.split("\r\n").collect();
            let name = format!("{} {}", parts[2], parts[4].split(':').next().unwrap());
            reply = match (&*name, ask.update) {
                (_, true) => Vec::new(),
                // Every other attempt finds a lock of another client.
                ("SET lock", _) => {
                    refused = !refused;
                    if refused { b"$-1\r\n".to_vec() } else { b"+OK\r\n".to_vec() }
                }
                ("DEL lock", _) => b":1\r\n".to_vec(),
                _ => b"$2\r\n50\r\n".to_vec(),
            };
            *counts.entry(name).or_insert(0) += 1;
        }
        counts
    }

    #[test]
    fn every_transaction_has_its_lock_and_gives_it_back() {
        let counts = play(&mut Tpcc::new(100, 1, 9), 400);
        assert_eq!(counts["DEL lock"], 400);
        assert_eq!(counts["SET lock"], 800, "tried again where somebody else had it");
        let orders = counts["HSET o"];
        assert!((170..240).contains(&orders), "{counts:?}");
        assert_eq!(counts["RPUSH h"], 400 - orders);
        assert_eq!(counts["HSET ol"], counts["HSET s"]);
        assert!(counts["HSET ol"] > 5 * orders);
    }

    #[test]
    fn without_updates_nothing_is_locked() {
        let counts = play(&mut Tpcc::new(0, 1, 9), 10);
        assert!(counts.keys().all(|name| !name.contains("lock")), "{counts:?}");
    }

    #[test]
    fn stock_is_filled_up() {
        assert_eq!((left_of(50, 10), left_of(15, 10)), (40, 96));
    }
}
