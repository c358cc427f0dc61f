//! A Twitter clone: the data of Redis' tutorial "Twitter clone" (posts, followers, posts by user, the timeline).
//!
//! A post's number comes from `INCR`, which is a bypass because the client needs its reply. The read of the followers
//! who get the post is a bypass, too. All writes are updates.

use super::{Ask, Workload, resp};
use crate::common::clients::{Random, encode};
use crate::common::error::BenchError;
use std::collections::VecDeque;

const USERS: u64 = 1000;
/// Whom each user follows at the beginning.
const FOLLOWS: u64 = 5;
/// Followers whose lists get a post.
const FOLLOWERS_MAX: &str = "9";
/// Posts that are shown.
const SHOWN_MAX: &str = "9";
/// The percentage of writes that are posts. The others are new followers.
const POSTS: u64 = 80;
/// A post's length, bytes.
const BODY: [u8; 100] = [b'b'; 100];

/// What the next reply is needed for.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Nothing,
    /// The number of a post.
    Number,
    /// The followers of the author.
    Followers {
        post: i64,
    },
    /// What to show.
    Shown,
}

/// A client of the site's server. It acts for one user after the other.
#[derive(Debug)]
pub(super) struct Twitter {
    random: Random,
    updates: u32,
    user: u64,
    stage: Stage,
    queue: VecDeque<Ask>,
}

impl Twitter {
    pub(super) fn new(updates: u32, seed: u64) -> Self {
        let queue = VecDeque::new();
        Self { random: Random::new(seed), updates, user: 0, stage: Stage::Nothing, queue }
    }

    fn queue(&mut self, update: bool, words: &[&str]) {
        self.queue.push_back(command(update, words));
    }

    /// Marks the last queued request as the end of a transaction.
    fn end(&mut self) {
        self.queue.iter_mut().last().into_iter().for_each(|ask| ask.ends = true);
    }

    fn begin(&mut self) {
        self.user = self.random.below(USERS);
        let user = self.user;
        if self.random.below(100) >= u64::from(self.updates) {
            self.queue(false, &["LRANGE", &format!("posts:{user}"), "0", SHOWN_MAX]);
            self.stage = Stage::Shown;
        } else if self.random.below(100) < POSTS {
            self.queue(false, &["INCR", "next_post_id"]);
            self.stage = Stage::Number;
        } else {
            let other = self.random.below(USERS);
            self.queue(true, &["ZADD", &format!("following:{user}"), "1", &other.to_string()]);
            self.queue(true, &["ZADD", &format!("followers:{other}"), "1", &user.to_string()]);
            self.end();
        }
    }

    fn go_on(&mut self, reply: &[u8]) -> Result<(), BenchError> {
        let user = self.user;
        match std::mem::replace(&mut self.stage, Stage::Nothing) {
            Stage::Nothing => self.begin(),
            Stage::Number => {
                let post = resp::integer(reply).ok_or_else(|| strange(reply, "a post's number"))?;
                let body = String::from_utf8_lossy(&BODY).into_owned();
                let words = ["HSET", &format!("post:{post}"), "user", &user.to_string(), "body", &body];
                self.queue(true, &words);
                self.queue(false, &["ZRANGE", &format!("followers:{user}"), "0", FOLLOWERS_MAX]);
                self.stage = Stage::Followers { post };
            }
            Stage::Followers { post } => {
                let post = post.to_string();
                for follower in resp::bulks(reply) {
                    let follower = String::from_utf8_lossy(follower);
                    self.queue(true, &["LPUSH", &format!("posts:{follower}"), &post]);
                }
                self.queue(true, &["LPUSH", &format!("posts:{user}"), &post]);
                self.queue(true, &["LPUSH", "timeline", &post]);
                self.queue(true, &["LTRIM", "timeline", "0", "1000"]);
                self.end();
            }
            Stage::Shown => {
                for post in resp::bulks(reply) {
                    let post = String::from_utf8_lossy(post);
                    self.queue(false, &["HGETALL", &format!("post:{post}")]);
                }
                self.end();
            }
        }
        Ok(())
    }
}

impl Workload for Twitter {
    fn next(&mut self, reply: &[u8], ask: &mut Ask) -> Result<(), BenchError> {
        if resp::is_error(reply) {
            return Err(strange(reply, "a result"));
        }
        if self.queue.is_empty() {
            self.go_on(reply)?;
        }
        while self.queue.is_empty() {
            // Nothing to show: the next user.
            self.begin();
        }
        self.queue.pop_front().into_iter().for_each(|next| *ask = next);
        Ok(())
    }
}

pub(super) fn command(update: bool, words: &[&str]) -> Ask {
    let mut bytes = Vec::new();
    encode(&mut bytes, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    let locks = !update && !resp::is_read(&bytes);
    Ask { bytes, update, locks, ends: false }
}

pub(super) fn strange(reply: &[u8], expected: &'static str) -> BenchError {
    BenchError::reply("the server", String::from_utf8_lossy(reply), expected)
}

/// Users that follow each other.
pub(super) fn fill() -> Vec<Vec<u8>> {
    let mut random = Random::new(USERS);
    let pairs = (0..USERS * FOLLOWS).map(|number| (number % USERS, random.below(USERS)));
    pairs
        .map(|(user, other)| {
            command(true, &["ZADD", &format!("followers:{other}"), "1", &user.to_string()]).bytes
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(ask: &Ask) -> String {
        let text = String::from_utf8_lossy(&ask.bytes).into_owned();
        text.split("\r\n").filter(|part| !part.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_post_gets_its_number_first_and_goes_to_followers_last() {
        let mut work = Twitter::new(100, 1);
        let mut ask = Ask::default();
        while work.stage != Stage::Number {
            work.next(b"", &mut ask).unwrap();
        }
        assert!(words(&ask).starts_with("INCR next_post_id") && !ask.update);
        work.next(b":7\r\n", &mut ask).unwrap();
        assert!(words(&ask).starts_with("HSET post:7 user") && ask.update);
        work.next(b"", &mut ask).unwrap();
        assert!(words(&ask).starts_with("ZRANGE followers:") && !ask.update);
        let mut seen = Vec::new();
        work.next(b"*2\r\n$1\r\n3\r\n$1\r\n4\r\n", &mut ask).unwrap();
        while !ask.ends {
            seen.push(words(&ask));
            work.next(b"", &mut ask).unwrap();
        }
        assert_eq!(seen[..2], ["LPUSH posts:3 7 ", "LPUSH posts:4 7 "]);
        assert_eq!(seen.len(), 4);
        assert!(work.next(b"-ERR\r\n", &mut ask).is_err());
    }
}
