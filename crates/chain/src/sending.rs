//! How chunks follow each other: `docs/format/chain.md`, under that title. All but one way are there to be compared with.

/// How a node sends to the node behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sending {
    /// Chunks go out as they fill, and follow each other; a replica passes one on while it makes it durable.
    #[default]
    Pipelined,
    /// As LineFS's `NotParallel`: a chunk goes out when it is full and the one before is acknowledged; a replica passes it on
    /// when it is durable there.
    OneAtATime,
    /// As Assise: nothing of the files goes out before `fsync` asks for it, unless the log is half full.
    AtFsync,
}

impl Sending {
    /// True if a replica passes on what it is still making durable.
    pub fn overlaps_stages(self) -> bool {
        self != Self::OneAtATime
    }

    /// True if nothing of the files is sent before somebody asks for it.
    pub fn waits_to_be_asked(self) -> bool {
        self == Self::AtFsync
    }
}

impl std::str::FromStr for Sending {
    type Err = UnknownSending;

    fn from_str(text: &str) -> Result<Self, UnknownSending> {
        match text {
            "pipelined" => Ok(Self::Pipelined),
            "one-at-a-time" => Ok(Self::OneAtATime),
            "at-fsync" => Ok(Self::AtFsync),
            _ => Err(UnknownSending),
        }
    }
}

/// Nothing is sent so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a chain sends pipelined, one-at-a-time or at-fsync")]
pub struct UnknownSending;

/// Chunks of a batch that are under way.
#[derive(Clone, Debug)]
pub struct Window {
    most: u64,
    under_way: u64,
}

impl Window {
    /// None is under way.
    pub fn new(sending: Sending) -> Self {
        let most = if sending == Sending::OneAtATime { 1 } else { u64::MAX };
        Self { most, under_way: 0 }
    }

    /// A chunk was sent. False if everything that is under way must be acknowledged before the next one is.
    pub fn send(&mut self) -> bool {
        self.under_way += 1;
        self.under_way < self.most
    }

    /// All chunks are acknowledged.
    pub fn acknowledge_all(&mut self) {
        self.under_way = 0;
    }

    /// How many chunks are under way.
    pub fn under_way(&self) -> u64 {
        self.under_way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most chunks that are under way, of so many.
    fn most_under_way(sending: Sending, chunks: u64) -> u64 {
        let (mut window, mut most) = (Window::new(sending), 0);
        for _ in 0..chunks {
            let goes_on = window.send();
            most = most.max(window.under_way());
            if !goes_on {
                window.acknowledge_all();
            }
        }
        most
    }

    #[test]
    fn one_chunk_at_a_time_is_under_way_or_all_of_them() {
        assert_eq!(most_under_way(Sending::OneAtATime, 100), 1);
        assert_eq!(most_under_way(Sending::Pipelined, 100), 100);
        assert_eq!(most_under_way(Sending::AtFsync, 100), 100);
    }

    #[test]
    fn a_way_is_known_by_its_name() {
        assert_eq!("pipelined".parse(), Ok(Sending::default()));
        assert_eq!("one-at-a-time".parse(), Ok(Sending::OneAtATime));
        assert_eq!("at-fsync".parse(), Ok(Sending::AtFsync));
        assert_eq!("in-turns".parse::<Sending>(), Err(UnknownSending));
        let kinds = [Sending::Pipelined, Sending::OneAtATime, Sending::AtFsync];
        assert_eq!(kinds.map(Sending::overlaps_stages), [true, false, true]);
        assert_eq!(kinds.map(Sending::waits_to_be_asked), [false, false, true]);
    }
}
