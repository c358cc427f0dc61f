//! Authentication: one user, `default`, with the password of the configuration.

use super::command::{Call, Session};
use super::fail::Fail;
use crate::secret::is_same;
use crate::shared::Shared;

/// Failed attempts after which a connection is closed.
const FAILURES_MAX: u32 = 10;
const USER: &[u8] = b"default";

const WRONG: Fail = Fail::error("WRONGPASS invalid username-password pair or user is disabled.");

impl Session {
    /// Checks name and password. Without a password in the configuration any one is accepted, as in Redis.
    pub(super) fn authenticate(&mut self, shared: &Shared, user: &[u8], password: &[u8]) -> Result<(), Fail> {
        let wanted = shared.config.password.as_deref();
        let right = wanted.is_none_or(|wanted| is_same(password, wanted.as_bytes()));
        if user != USER || !right {
            self.failures += 1;
            // No delay is possible here, because the loop serves other clients. A client that guesses has to connect
            // again instead.
            self.state.closing |= self.failures >= FAILURES_MAX;
            tracing::warn!(client = self.id, failures = self.failures, "failed to authenticate");
            return Err(WRONG);
        }
        self.state.authenticated = true;
        Ok(())
    }
}

/// `AUTH [user] password`
pub(super) fn auth(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let shared = call.shared();
    match call.words.len() {
        2 if shared.config.password.is_none() => {
            return Err(Fail::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => call.session.authenticate(shared, USER, &call.words.bytes(1))?,
        3 => call.session.authenticate(shared, &call.words.bytes(1), &call.words.bytes(2))?,
        _ => return Err(Fail::syntax()),
    }
    call.ok()
}
