//! The parts of the address space that are in use, in units of 16 MiB. KVM's bookkeeping grows with
//! the memory slots, so only units in use get one.

use std::ops::Range;

use crate::memory::layout::USER_END;

/// A set of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units([bool; MANY]);

const MANY: usize = 224;
const _: () = assert!(MANY as u64 * Units::BYTES == USER_END);

impl Default for Units {
    fn default() -> Self {
        Self([false; MANY])
    }
}

impl Units {
    /// Bytes of a unit.
    pub const BYTES: u64 = 16 << 20;

    /// Adds the units that a range touches.
    pub(crate) fn cover(&mut self, range: &Range<u64>) {
        for (unit, used) in Self::all().zip(&mut self.0) {
            *used |= unit.start < range.end && range.start < unit.end;
        }
    }

    /// The ranges of the units that are not in `others`.
    pub(crate) fn beyond(&self, others: &Self) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        // The usual case, at each entry of a guest.
        if self == others {
            return found;
        }
        for (unit, _) in Self::all().zip(self.0.iter().zip(&others.0)).filter(|(_, (a, b))| a > b) {
            match found.last_mut() {
                Some(last) if last.end == unit.start => last.end = unit.end,
                _ => found.push(unit),
            }
        }
        found
    }

    fn all() -> impl Iterator<Item = Range<u64>> {
        (0..MANY as u64).map(|unit| unit * Self::BYTES..(unit + 1) * Self::BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_next_to_each_other_are_one_range_and_known_ones_are_left_out() {
        let mut known = Units::default();
        known.cover(&(0..1));
        let mut all = known;
        let [second, last] = [Units::BYTES, USER_END - Units::BYTES];
        all.cover(&(second + 1..second * 64 + 1));
        all.cover(&(USER_END - 1..USER_END));
        assert_eq!(all.beyond(&known), [second..second * 65, last..USER_END]);
        assert_eq!(all.beyond(&all), []);
        assert_eq!(known.beyond(&all), []);
    }
}
