//! How much processor time may be spent on making zygotes: plain data.
//!
//! Each start adds a part of the time that its imports would take without any zygote; planning and
//! making zygotes is paid from that. So all prewarming costs at most that part of what a worker
//! without zygotes would spend on imports, whatever it achieves. A zygote made at a deploy was
//! asked for, and is made whatever the balance: its function takes on a debt, which its starts
//! repay first.

/// Milliseconds of processor time that may be spent on making zygotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    balance: f64,
}

/// The part of its import time, zygotes aside, that a start adds to the balance.
const PART: f64 = 0.25;

/// What a new worker may spend before its first call: it has no zygote, and mostly nothing else to
/// do.
const OPENING_MS: f64 = 1000.0;

/// What a start adds whose imports take `milliseconds` without a zygote.
pub(crate) fn credit_for(milliseconds: f64) -> f64 {
    PART * milliseconds
}

impl Default for Account {
    fn default() -> Self {
        Self { balance: OPENING_MS }
    }
}

impl Account {
    /// Adds the credit of one start. The balance, or debt, halves every `half_life` starts.
    pub(crate) fn credit(&mut self, credit: f64, half_life: f64) {
        self.balance = self.balance * (-1.0 / half_life).exp2() + credit;
    }

    /// Subtracts the time that making or planning took.
    pub(crate) fn spend(&mut self, milliseconds: f64) {
        self.balance -= milliseconds;
    }

    /// Milliseconds that may be spent now.
    pub(crate) fn balance(&self) -> f64 {
        self.balance
    }
}

/// Milliseconds that a function owes for zygotes made at its deploy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debt(f64);

impl Debt {
    /// Adds to the debt; a negative number corrects an estimate.
    pub(crate) fn charge(&mut self, milliseconds: f64) {
        self.0 += milliseconds;
    }

    /// Whether nothing is left to repay.
    pub(crate) fn is_paid(&self) -> bool {
        self.0 <= 0.0
    }

    /// Repays with the credit of a start, and returns what is left of that.
    pub(crate) fn repay(&mut self, credit: f64) -> f64 {
        let paid = credit.min(self.0.max(0.0));
        self.0 -= paid;
        credit - paid
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
            account.credit(credit_for(100.0), half_life);
            if account.balance() >= 300.0 {
                account.spend(300.0);
                spent += 300.0;
            }
        }
        assert!((0.9..=1.0).contains(&(spent / (PART * 100.0 * 1000.0))), "{spent}");
        account.spend(1e6);
        (0..20_000).for_each(|_| account.credit(0.0, half_life));
        assert!(account.balance().abs() < 1.0, "{account:?}");
    }

    #[test]
    fn one_start_in_two_hundred_can_pay_for_a_zygote_alone_and_one_in_three_hundred_cannot() {
        let (import, making) = (3000.0, 20.0);
        let most = |every: u32| {
            let (mut account, mut most) = (Account::default(), f64::MIN);
            account.spend(OPENING_MS);
            for start in 0..100 * every {
                let credit = if start % every == 0 { credit_for(import) } else { 0.0 };
                account.credit(credit, 500.0);
                most = account.balance().max(most);
            }
            most
        };
        assert!(most(200) >= import + making, "{}", most(200));
        assert!(most(300) < import + making, "{}", most(300));
    }

    #[test]
    fn what_a_start_brings_in_pays_debts_first_and_the_rest_is_left() {
        let mut debt = Debt::default();
        assert_eq!(debt.repay(10.0), 10.0);
        debt.charge(25.0);
        assert_eq!([debt.repay(10.0), debt.repay(10.0), debt.repay(10.0)], [0.0, 0.0, 5.0]);
        assert!(debt.is_paid());
    }
}
