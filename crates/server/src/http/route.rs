//! Maps paths to resources, and lists the methods of each.

use super::answer::Refusal;
use super::resource::Resource;
use landfall_http::{Method, decode_path};
use std::borrow::Cow;

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// `/kv/{key}`, with the key decoded.
    Key(Cow<'a, [u8]>),
    /// `/kv`
    Scan,
    /// `/wal` and below.
    Wal(Resource),
    /// `/metrics`
    Metrics,
    /// `/healthz`
    Health,
    /// `/`
    Help,
    /// `*`, for `OPTIONS`.
    Server,
}

/// Finds the resource of a path as the client sent it.
pub(super) fn find(path: &[u8]) -> Result<Route<'_>, Refusal> {
    if let Some(key) = path.strip_prefix(b"/kv/") {
        return Ok(Route::Key(decode_path(key)?));
    }
    if let Some(resource) = Resource::find(path)? {
        return Ok(Route::Wal(resource));
    }
    match path {
        b"/kv" => Ok(Route::Scan),
        b"/metrics" => Ok(Route::Metrics),
        b"/healthz" => Ok(Route::Health),
        b"/" => Ok(Route::Help),
        b"*" => Ok(Route::Server),
        _ => Err(Refusal::new(404, "no such resource: GET / names those there are")),
    }
}

impl Route<'_> {
    /// The methods of the resource, as `Allow` lists them.
    pub(super) fn allow(&self) -> &'static str {
        match self {
            Self::Wal(resource) => resource.allow(),
            Self::Key(_) | Self::Server => "GET, HEAD, PUT, POST, DELETE, OPTIONS",
            _ => "GET, HEAD, OPTIONS",
        }
    }

    /// Refuses a method that the resource does not have.
    pub(super) fn check(&self, method: &Method) -> Result<(), Refusal> {
        let known = match method {
            Method::Other(_) => false,
            method if matches!(self, Self::Wal(_)) => {
                self.allow().split(", ").any(|known| known == method.as_str())
            }
            Method::Options => true,
            Method::Get | Method::Head => *self != Route::Server,
            Method::Put | Method::Post | Method::Delete => matches!(self, Self::Key(_)),
        };
        if known {
            return Ok(());
        }
        let message = format!("this resource knows {}", self.allow());
        Err(Refusal { allow: Some(self.allow()), ..Refusal::new(405, message) })
    }

    /// True for resources that need no password.
    pub(super) fn is_open(&self) -> bool {
        *self == Route::Health
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_decoded_rest_of_the_path() {
        let key = |path: &'static str| match find(path.as_bytes()) {
            Ok(Route::Key(key)) => key.into_owned(),
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(key("/kv/a"), b"a");
        assert_eq!(key("/kv/a/b//c/"), b"a/b//c/");
        assert_eq!(key("/kv/a%2Fb%00%ff+"), b"a/b\0\xff+");
        assert_eq!(key("/kv/"), b"", "the empty key is a key, as in Redis");
    }

    #[test]
    fn unknown_and_malformed_paths_are_refused() {
        for (path, status) in [("/kvx", 404), ("/KV/a", 404), ("/metrics/", 404), ("/kv/%4", 400)] {
            assert_eq!(find(path.as_bytes()).unwrap_err().status, status, "{path}");
        }
    }
}
