//! A token bucket: so much at once, and so much a second on the average.

use std::time::{Duration, Instant};

/// How a bucket fills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// A second, on the average.
    pub each_second: f64,
    /// The most that can be taken at once.
    pub burst: f64,
}

/// What is left of a rate.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// A bucket that holds all that it can.
    pub fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    /// Takes that much, or says how long it is until there is so much; for ever, if it never fits.
    pub fn take(&mut self, amount: f64, rate: Rate, now: Instant) -> Result<(), Duration> {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * rate.each_second).min(rate.burst);
        self.at = now;
        if self.left >= amount {
            self.left -= amount;
            return Ok(());
        }
        let wait = (amount - self.left) / rate.each_second;
        let fits = amount <= rate.burst;
        Err(Duration::try_from_secs_f64(wait).ok().filter(|_| fits).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_what_the_rate_earns() {
        let rate = Rate { each_second: 100.0, burst: 1000.0 };
        let begin = Instant::now();
        let mut bucket = Bucket::full(rate, begin);
        let mut take =
            |amount: f64, millis| bucket.take(amount, rate, begin + Duration::from_millis(millis));
        assert_eq!(take(1000.0, 0), Ok(()));
        assert_eq!(take(1.0, 0), Err(Duration::from_millis(10)));
        assert_eq!(take(200.0, 1000), Err(Duration::from_secs(1)));
        assert_eq!(take(200.0, 2000), Ok(()));
        // A long rest earns one burst and no more.
        assert_eq!(take(1001.0, 1_000_000), Err(Duration::MAX));
        assert_eq!(take(1000.0, 1_000_000), Ok(()));
    }
}
