//! Logging in to an etcd that demands it: a user's password buys a token, which etcd lets expire.

use super::config::EtcdUser;
use super::http::{Endpoint, Failure};
use super::wire::understand;
use crate::error::MembersError;
use serde::Deserialize;
use serde_json::json;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A user, and the token that all calls share.
pub(super) struct Login {
    user: EtcdUser,
    token: Mutex<Option<Arc<str>>>,
}

/// A token, and whether etcd has just given it.
pub(super) struct Token {
    pub(super) text: Arc<str>,
    pub(super) is_new: bool,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token is as good as the password for as long as it is valid.
        f.debug_struct("Login").field("user", &self.user).finish()
    }
}

impl Login {
    pub(super) fn new(user: EtcdUser) -> Self {
        Self { user, token: Mutex::default() }
    }

    /// The token; without one, the address is asked for it.
    pub(super) fn token(&self, endpoint: &Endpoint, end: Instant) -> Result<Token, Failure> {
        // The lock is not held while etcd is asked, so that no call waits longer than its own time limit.
        if let Some(text) = self.held().clone() {
            return Ok(Token { text, is_new: false });
        }
        let text = self.authenticate(endpoint, end).map_err(|error| Failure { error, sent: false })?;
        *self.held() = Some(Arc::clone(&text));
        Ok(Token { text, is_new: true })
    }

    /// Forgets a token that etcd has refused, unless another call has renewed it already.
    pub(super) fn forget(&self, refused: &Token) {
        let mut held = self.held();
        if held.as_ref() == Some(&refused.text) {
            *held = None;
        }
    }

    fn authenticate(&self, endpoint: &Endpoint, end: Instant) -> Result<Arc<str>, MembersError> {
        #[derive(Deserialize)]
        struct Authenticated {
            token: String,
        }
        let request = json!({"name": self.user.name(), "password": self.user.password()}).to_string();
        let answer = endpoint.post("/v3/auth/authenticate", request.as_bytes(), None, end);
        let answer = answer.map_err(|failure| failure.error)?;
        match understand::<Authenticated>(endpoint, &answer) {
            Ok(authenticated) => Ok(authenticated.token.into()),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// etcd's refusal says neither what for nor whom, unless it cannot answer at the moment.
    fn refused(&self, error: MembersError) -> MembersError {
        match error {
            MembersError::Refused { endpoint, status, message, .. } if status < 500 => {
                MembersError::Login { endpoint, user: self.user.name().to_owned(), message }
            }
            error => error,
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
