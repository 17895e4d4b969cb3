//! A sandbox's part of the processors: a quota, which is never exceeded, and a weight, which counts where they are all taken.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number of processors, in thousandths: half a processor, 500, is what Docker calls `--cpus=0.5` and systemd
/// `CPUQuota=50%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Processors(u32);

/// Why something is no [`Processors`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("write a number of processors from 0.01 to 1024, such as 0.5 for half of one")]
pub struct NoProcessors;

impl Processors {
    /// In thousandths of one.
    #[must_use]
    pub fn thousandths(self) -> u32 {
        self.0
    }

    /// As a number of them.
    #[must_use]
    pub fn number(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl TryFrom<f64> for Processors {
    type Error = NoProcessors;

    fn try_from(number: f64) -> Result<Self, NoProcessors> {
        // The kernel's shortest turn is a millisecond in its default period of a hundred.
        if !(0.01..=1024.0).contains(&number) {
            return Err(NoProcessors);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 10 and 1024000, checked above"
        )]
        Ok(Self((number * 1000.0).round() as u32))
    }
}

impl FromStr for Processors {
    type Err = NoProcessors;

    fn from_str(text: &str) -> Result<Self, NoProcessors> {
        text.trim().parse::<f64>().map_err(|_| NoProcessors)?.try_into()
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// What one sandbox may have of the processors. Who is given neither counts for what its threads are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The most, whatever is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Processors>,
    /// Its part beside others, from 1 to 10000, where 100 is one thread's that has none: systemd's `CPUWeight`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
}

impl Cpu {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// What an operator says of quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuBounds {
    /// Of an instance whose function asks for none.
    pub default: Option<Processors>,
    /// The most that any sandbox gets, asked for or not.
    pub most: Option<Processors>,
}

impl CpuBounds {
    /// No default and no maximum.
    pub const NONE: Self = Self { default: None, most: None };

    /// What an instance gets whose function asks for that.
    #[must_use]
    pub fn of_instance(self, asked: Cpu) -> Cpu {
        self.bounded(Cpu { quota: asked.quota.or(self.default), ..asked })
    }

    /// The same for what serves no call: a zygote while it imports, a build.
    #[must_use]
    pub fn bounded(self, asked: Cpu) -> Cpu {
        let both = asked.quota.into_iter().chain(self.most);
        Cpu { quota: both.min(), ..asked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: f64) -> Processors {
        number.try_into().unwrap()
    }

    #[test]
    fn processors_are_read_as_people_write_them() {
        assert_eq!("0.5".parse(), Ok(of(0.5)));
        assert_eq!((of(0.5).thousandths(), of(2.0).to_string()), (500, "2".to_owned()));
        assert_eq!(of(0.25).to_string(), "0.25");
        for bad in ["", "0", "-1", "50%", "NaN", "0.001", "1025"] {
            assert_eq!(bad.parse::<Processors>(), Err(NoProcessors), "{bad:?}");
        }
    }

    #[test]
    fn the_operators_most_holds_for_everybody_and_the_default_for_who_does_not_ask() {
        let bounds = CpuBounds { default: Some(of(1.0)), most: Some(of(2.0)) };
        let asked = |number: f64| Cpu { quota: Some(of(number)), weight: Some(7) };
        assert_eq!(bounds.of_instance(asked(0.5)), asked(0.5));
        assert_eq!(bounds.of_instance(asked(4.0)), asked(2.0));
        assert_eq!(bounds.of_instance(Cpu::default()).quota, Some(of(1.0)));
        assert_eq!(bounds.bounded(Cpu::default()).quota, Some(of(2.0)));
        let none = CpuBounds::default();
        assert!(none.of_instance(Cpu::default()).is_unlimited());
        assert!(none.bounded(Cpu::default()).is_unlimited());
    }
}
