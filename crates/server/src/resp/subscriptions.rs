//! What a client listens for, and the messages that it gets.

use landfall_resp::{Writer, glob_match};
use std::collections::BTreeSet;

/// What a client listens for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subscriptions {
    channels: BTreeSet<Box<[u8]>>,
    patterns: BTreeSet<Box<[u8]>>,
}

/// By name, or by pattern.
#[derive(Clone, Copy)]
pub(super) enum By {
    Name,
    Pattern,
}

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    pub(super) fn of(&mut self, by: By) -> &mut BTreeSet<Box<[u8]>> {
        match by {
            By::Name => &mut self.channels,
            By::Pattern => &mut self.patterns,
        }
    }

    /// Writes a message for each subscription that it is for.
    pub(super) fn write(&self, channel: &str, text: &str, out: &mut Writer<'_>) {
        if self.channels.contains(channel.as_bytes()) {
            out.push(3);
            [b"message", channel.as_bytes(), text.as_bytes()].iter().for_each(|word| out.bulk(word));
        }
        for pattern in self.patterns.iter().filter(|pattern| glob_match(pattern, channel.as_bytes())) {
            out.push(4);
            [b"pmessage", &**pattern, channel.as_bytes(), text.as_bytes()]
                .iter()
                .for_each(|word| out.bulk(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_resp::Protocol;

    fn message(subscriptions: &Subscriptions, protocol: Protocol) -> String {
        let mut out = Vec::new();
        subscriptions.write("+switch-master", "orders a 1 b 2", &mut Writer::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_message_comes_once_for_each_subscription_that_it_is_for() {
        let mut subscriptions = Subscriptions::default();
        assert_eq!(message(&subscriptions, Protocol::Resp2), "");
        subscriptions.of(By::Name).insert(b"+sdown"[..].into());
        assert_eq!(message(&subscriptions, Protocol::Resp2), "");
        subscriptions.of(By::Name).insert(b"+switch-master"[..].into());
        let text = "$14\r\n+switch-master\r\n$14\r\norders a 1 b 2\r\n";
        assert_eq!(message(&subscriptions, Protocol::Resp2), format!("*3\r\n$7\r\nmessage\r\n{text}"));
        subscriptions.of(By::Pattern).insert(b"+switch*"[..].into());
        let by_pattern = format!(">4\r\n$8\r\npmessage\r\n$8\r\n+switch*\r\n{text}");
        assert_eq!(
            message(&subscriptions, Protocol::Resp3),
            format!(">3\r\n$7\r\nmessage\r\n{text}{by_pattern}")
        );
    }
}
