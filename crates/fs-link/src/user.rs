//! Who may share memory: processes of one user.

/// The number that the kernel shows for every user without one in a namespace of users (`/proc/sys/kernel/overflowuid`).
const OVERFLOW_USER: u32 = 65534;

/// True if both ends of a socket belong to one user. The number that may stand for several users is nobody's.
pub fn is_same_user(one: u32, other: u32) -> bool {
    one == other && one != OVERFLOW_USER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_may_stand_for_several_users_is_nobodys() {
        assert!(is_same_user(0, 0) && is_same_user(1000, 1000));
        assert!(!is_same_user(1000, 0) && !is_same_user(OVERFLOW_USER, OVERFLOW_USER));
    }
}
