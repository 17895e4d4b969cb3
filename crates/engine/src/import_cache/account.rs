//! What making zygotes may cost: plain data.
//!
//! Imports that calls need bring in a part of what they take where nothing is there to fork from; making a zygote, and
//! thinking about which, is paid from that. So all that is made ahead takes no more of the processors than that part
//! of what a worker without zygotes would spend on imports, whatever comes of it.

/// Milliseconds of a processor that may be spent on making zygotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    balance: f64,
}

/// The part of their imports, had they to do all of them, that starts bring in.
const PART: f64 = 0.25;

/// What a new worker may spend before anything was called: it has nothing yet, and mostly nothing else to do.
const OPENING_MS: f64 = 1000.0;

impl Default for Account {
    fn default() -> Self {
        Self { balance: OPENING_MS }
    }
}

impl Account {
    /// A handler is started whose imports take `milliseconds`; `half_life` is after how many starts what was left, or
    /// lacking, counts half.
    pub(super) fn earn(&mut self, milliseconds: f64, half_life: f64) {
        self.balance = self.balance * (-1.0 / half_life).exp2() + PART * milliseconds;
    }

    /// Something was made, or thought about, for so long.
    pub(super) fn spend(&mut self, milliseconds: f64) {
        self.balance -= milliseconds;
    }

    /// What may be spent now.
    pub(super) fn balance(&self) -> f64 {
        self.balance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_spent_than_a_part_of_what_imports_take_and_what_was_long_ago_is_forgotten() {
        let (mut account, half_life) = (Account::default(), 500.0);
        account.spend(OPENING_MS);
        let mut spent = 0.0;
        for _ in 0..1000 {
            account.earn(100.0, half_life);
            if account.balance() >= 300.0 {
                account.spend(300.0);
                spent += 300.0;
            }
        }
        assert!((0.9..=1.0).contains(&(spent / (PART * 100.0 * 1000.0))), "{spent}");
        account.spend(1e6);
        (0..20_000).for_each(|_| account.earn(0.0, half_life));
        assert!(account.balance().abs() < 1.0, "{account:?}");
    }
}
