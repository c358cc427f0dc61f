//! Calls of mounts on other machines that are done once only: what one has done and that it was done are in the log together
//! (`docs/format/fs.md`, "Calls"), so that any server that has the files knows it.

use crate::lives::MountId;
use landfall_fs::{Call, Files};
use landfall_fuse::Unique;
use std::cell::Cell;

thread_local! {
    /// The queue whose requests this thread answers, if it is that of a mount on another machine.
    static QUEUE: Cell<Option<(MountId, u8)>> = const { Cell::new(None) };
    /// The call that this thread has begun, and of which it has done nothing yet.
    static BEGUN: Cell<Option<Call>> = const { Cell::new(None) };
}

/// What a request is about to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Two numbers whose meaning the kind of the request defines.
    pub(crate) numbers: [u64; 2],
    /// A server that has died had begun it.
    pub(crate) is_again: bool,
    /// That server had executed its first operation, and what it has done is not lost.
    pub(crate) is_done: bool,
}

impl Begun {
    /// It was not begun before.
    pub(crate) fn now(numbers: [u64; 2]) -> Self {
        Self { numbers, is_again: false, is_done: false }
    }
}

/// From now on the calling thread answers requests of this queue.
pub(crate) fn answer_by_this_thread(mount: MountId, queue: u8) {
    QUEUE.set(Some((mount, queue)));
}

/// True if the calling thread answers requests of a mount on another machine.
pub(crate) fn is_of_this_thread() -> bool {
    QUEUE.get().is_some()
}

/// A request begins to change what `find` finds. If it is sent again, and an earlier server or connection has done it, what
/// that has found.
///
/// # Errors
/// Those of `find`.
pub(crate) fn begin<E>(
    files: &Files,
    unique: Unique,
    find: impl FnOnce() -> Result<[u64; 2], E>,
) -> Result<Begun, E> {
    let id = unique.first().0;
    let Some((mount, queue)) = QUEUE.get() else { return find().map(Begun::now) };
    // Few requests are sent again: the others need not ask.
    if unique.is_resent()
        && let Some(Call { numbers, .. }) = files.last_call(mount, queue).filter(|call| call.id == id)
    {
        return Ok(Begun { numbers, is_again: true, is_done: true });
    }
    let numbers = find()?;
    BEGUN.set(Some(Call { mount, queue, id, numbers }));
    Ok(Begun::now(numbers))
}

/// The call that the calling thread has begun, and of which it has done nothing yet.
pub(crate) fn begun() -> Option<Call> {
    BEGUN.get()
}

/// The calling thread has begun no call: it answers another request, or the first operation of the call is in the log, and
/// with it that the call was done.
pub(crate) fn end() {
    BEGUN.set(None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Sharing;
    use crate::lives::MountNumber;
    use crate::service::tests::service_of;
    use crate::service::{Held, Service, Which};
    use landfall_fs::{ExtendedName, InodeNumber, Operation, Witness};
    use std::sync::Arc;

    const MOUNT: MountId = [3; 16];
    const AGAIN: u64 = 1 << 63;
    const NAME: &[u8] = b"user.a";

    fn served() -> Service {
        let which = Which { mount: MountNumber(1), sharing: Sharing::Shared };
        let (service, _) = service_of(Some(Held::Elsewhere(MOUNT)), which);
        service.files.set_witness(Some(Arc::clone(&service.common.ledgers) as Arc<dyn Witness>));
        service
    }

    /// What a queue's thread knows of a request, which it executes with some operations if it was not done.
    fn ask(service: &Service, queue: u8, unique: u64, operations: &[Operation<'_>]) -> Begun {
        std::thread::scope(|scope| {
            let answer = || {
                answer_by_this_thread(MOUNT, queue);
                service.note_received(Unique(unique));
                let numbers = [unique & !AGAIN, 5];
                let begun = begin(&service.files, Unique(unique), || Ok::<_, ()>(numbers)).expect("numbers");
                let undone = operations.iter().filter(|_| !begun.is_done);
                undone.for_each(|operation| _ = service.execute_now(operation));
                begun
            };
            scope.spawn(answer).join().expect("no panic")
        })
    }

    #[test]
    fn a_call_that_was_done_is_known_until_its_queue_has_the_next_one() {
        let (service, number) = (served(), InodeNumber::ROOT);
        let name = ExtendedName::new(NAME).expect("a good name");
        let set = Operation::SetExtended { number, name, value: b"1" };
        let remove = Operation::RemoveExtended { number, name };
        let first = Begun::now([2, 5]);
        assert_eq!(ask(&service, 0, 2, &[set, set]), first);
        let done = Begun { is_again: true, is_done: true, ..first };
        for _ in 0..2 {
            assert_eq!(ask(&service, 0, 2 | AGAIN, &[remove]), done);
        }
        assert!(!ask(&service, 1, 2 | AGAIN, &[]).is_done, "it came by another queue");
        assert!(!ask(&service, 0, 4 | AGAIN, &[]).is_done, "nothing was done for it");
        assert!(ask(&service, 0, 2 | AGAIN, &[]).is_done, "nothing else was done since");
        ask(&service, 0, 6, &[remove]);
        assert!(!ask(&service, 0, 2 | AGAIN, &[]).is_done, "its answer was heard");
    }

    #[test]
    fn a_call_that_is_refused_is_not_done() {
        let (service, number) = (served(), InodeNumber::ROOT);
        let name = ExtendedName::new(NAME).expect("a good name");
        let remove = Operation::RemoveExtended { number, name };
        ask(&service, 0, 2, &[remove]);
        assert!(!ask(&service, 0, 2 | AGAIN, &[remove]).is_done, "there is no such attribute");
        let set = Operation::SetExtended { number, name, value: b"1" };
        ask(&service, 0, 2 | AGAIN, &[set]);
        assert!(ask(&service, 0, 2 | AGAIN, &[]).is_done);
    }

    #[test]
    fn what_this_server_does_by_itself_is_no_call() {
        let (service, number) = (served(), InodeNumber::ROOT);
        let name = ExtendedName::new(NAME).expect("a good name");
        ask(&service, 0, 2, &[]);
        service.execute_now(&Operation::SetExtended { number, name, value: b"1" }).expect("there is room");
        assert_eq!(service.files.last_call(MOUNT, 0), None);
    }
}
