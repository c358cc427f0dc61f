//! What a server asks the holder of a mount.

use super::channel::Channel;
use super::message::Message;
use crate::forget::Ask;
use crate::mates::AskKnown;
use landfall_fs::InodeNumber;
use std::sync::Arc;

/// Asks the holder to make the kernel drop what it keeps.
pub(super) fn asks(channel: &Arc<Channel>) -> Ask {
    let channel = Arc::clone(channel);
    Box::new(move |question, inode: InodeNumber| {
        channel.try_send(&Message::Forget { question, inode: inode.0 })
    })
}

/// Asks the holder which inodes its kernel does not know.
pub(super) fn asks_known(channel: &Arc<Channel>) -> AskKnown {
    let channel = Arc::clone(channel);
    Box::new(move |inodes: &[InodeNumber]| {
        let inodes = inodes.iter().map(|inode| inode.0).collect();
        channel.try_send(&Message::AskKnown { inodes })
    })
}
