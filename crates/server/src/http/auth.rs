//! Checks the password in `Authorization` (RFC 7617 Basic with any user, RFC 6750 Bearer).

use super::answer::Refusal;
use super::base64;
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

/// Compares in constant time: the time depends only on the given password's length, not on how much of it is right.
fn is_same(given: &[u8], expected: &[u8]) -> bool {
    let mut differs = usize::from(given.len() != expected.len());
    let mut cycle = expected.iter().cycle();
    for byte in given {
        differs |= usize::from(byte ^ cycle.next().copied().unwrap_or(!byte));
    }
    std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_password_matches() {
        for (given, expected, same) in [
            ("secret", "secret", true),
            ("secre", "secret", false),
            ("secrets", "secret", false),
            ("secretsecret", "secret", false),
            ("Secret", "secret", false),
            ("", "secret", false),
            ("", "", true),
            ("x", "", false),
        ] {
            assert_eq!(is_same(given.as_bytes(), expected.as_bytes()), same, "{given:?} {expected:?}");
        }
    }

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
