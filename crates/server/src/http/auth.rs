//! Checks the password in `Authorization` (RFC 7617 Basic with any user, RFC 6750 Bearer).

use super::answer::Refusal;
use super::base64;
use crate::secret::is_same;
use landfall_http::Request;

/// Accepts a request if no password is needed, or if it has the right one.
pub(super) fn check(request: &Request, password: Option<&str>) -> Result<(), Refusal> {
    let Some(password) = password else { return Ok(()) };
    let given = request.header("authorization").and_then(given_password);
    match given {
        Some(given) if is_same(&given, password.as_bytes()) => Ok(()),
        Some(_) => Err(Refusal::new(401, "wrong password")),
        None => Err(Refusal::new(401, "send the password: Authorization: Basic (any user) or Bearer")),
    }
}

fn given_password(field: &[u8]) -> Option<Vec<u8>> {
    let blank = field.iter().position(|byte| *byte == b' ')?;
    let (scheme, credentials) = (&field[..blank], field[blank..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(credentials.to_vec());
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = base64::decode(credentials)?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_schemes_are_read_in_any_case() {
        let want = Some(b"a:b c".to_vec());
        assert_eq!(given_password(b"Bearer  a:b c"), want);
        assert_eq!(given_password(b"bASIC dXNlcjphOmIgYw=="), want);
        for malformed in ["Basic", "Basic ####", "Basic dXNlcg==", "Digest a", ""] {
            assert_eq!(given_password(malformed.as_bytes()), None, "{malformed}");
        }
    }
}
