//! How many descriptors this process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most that this process can allow itself without privilege.
#[must_use]
pub fn most() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Allows this process as many as it can have without privilege, and with privilege at least `wanted`. How many these
/// then are. A shell's usual 1024 are for programs that use `select(2)`.
pub fn raise(wanted: u64) -> u64 {
    let hard = most();
    for limit in [wanted.max(hard), hard] {
        let both = Rlimit { current: Some(limit), maximum: Some(limit) };
        if setrlimit(Resource::Nofile, both).is_ok() {
            return limit;
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_never_lowered() {
        let before = most();
        assert!(raise(0) >= before);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), before);
    }
}
