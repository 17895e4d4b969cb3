//! Times as stores hold them: whole milliseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; zero for an earlier time.
#[must_use]
pub fn to_millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The time so many milliseconds after 1970; 1970 for a negative number.
#[must_use]
pub fn from_millis(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// The time as a store gives it back.
#[must_use]
pub fn truncate(time: SystemTime) -> SystemTime {
    from_millis(to_millis(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_cut_to_the_millisecond_and_never_lies_before_1970() {
        let time = UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_987);
        assert_eq!(to_millis(time), 1_700_000_000_123);
        assert_eq!(truncate(time), UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
        assert_eq!(truncate(UNIX_EPOCH - Duration::from_secs(1)), UNIX_EPOCH);
        assert_eq!(from_millis(-1), UNIX_EPOCH);
    }
}
