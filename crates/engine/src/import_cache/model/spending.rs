//! What making zygotes may cost: plain data.
//!
//! Imports that calls need bring in a part of what they take where nothing is there to fork from; making a zygote, and
//! thinking about which, is paid from that. So all that is made ahead takes no more of the processors than that part
//! of what a worker without zygotes would spend on imports, whatever comes of it. A zygote that is made with a deploy was
//! asked for, and is made whatever is left: the function that it is for owes it, and its starts pay that first.

/// Milliseconds of a processor that may be spent on making zygotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    balance: f64,
}

/// The part of their imports, had they to do all of them, that starts bring in.
const PART: f64 = 0.25;

/// What a new worker may spend before anything was called: it has nothing yet, and mostly nothing else to do.
const OPENING_MS: f64 = 1000.0;

/// What a start brings in whose imports were measured to take `milliseconds` from nothing.
pub(crate) fn credit_for(milliseconds: f64) -> f64 {
    PART * milliseconds
}

impl Default for Account {
    fn default() -> Self {
        Self { balance: OPENING_MS }
    }
}

impl Account {
    /// A handler was started, which brought that in; `half_life` is after how many starts what was left, or lacking, counts
    /// half.
    pub(crate) fn credit(&mut self, credit: f64, half_life: f64) {
        self.balance = self.balance * (-1.0 / half_life).exp2() + credit;
    }

    /// Something was made, or thought about, for so long.
    pub(crate) fn spend(&mut self, milliseconds: f64) {
        self.balance -= milliseconds;
    }

    /// What may be spent now.
    pub(crate) fn balance(&self) -> f64 {
        self.balance
    }
}

/// Milliseconds of a processor that a function owes for what was made with its deploy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debt(f64);

impl Debt {
    /// Something was made for so long; less than nothing corrects what was expected.
    pub(crate) fn charge(&mut self, milliseconds: f64) {
        self.0 += milliseconds;
    }

    /// Whether nothing is left to pay.
    pub(crate) fn is_paid(&self) -> bool {
        self.0 <= 0.0
    }

    /// Pays with what a start brought in. What is left of that.
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
