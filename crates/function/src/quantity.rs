//! Quantities that people write in settings: bytes (`6MiB`), spans of time (`30s`) and processors (`0.5`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::{NoProcessors, Processors};

/// A number of bytes: a whole number, or one with a unit such as `6MiB` or `1.5 GiB`. `MB` and `M`
/// are the same as `MiB`, as they are for Lambda; so it is with K, G and T.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A span of time: a number of seconds, or text such as `500ms`, `30s`, `10m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of processors: `2`, `0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(pub Processors);

/// Why a text is no quantity.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// Not a number of bytes.
    #[error("{0:?} is no size: write for example 512, 64KiB, 6MiB or 2GiB")]
    Bytes(String),
    /// Not a span of time.
    #[error("{0:?} is no time: write for example 30, 500ms, 30s or 10m")]
    Span(String),
    /// A number of what?
    #[error("{0} of what? Write for example {0}h or {0}d")]
    NoUnit(String),
    /// Not a number of processors.
    #[error(transparent)]
    Cpus(#[from] NoProcessors),
}

/// Of bytes, in lower case.
const UNITS: [(&str, u64); 5] =
    [("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40), ("", 1)];

impl FromStr for Bytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        read_bytes(text.trim()).map(Self).ok_or_else(|| QuantityError::Bytes(text.to_owned()))
    }
}

fn read_bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = factor(&unit.trim().to_ascii_lowercase())?;
    if factor == 1 {
        // A part of a byte is none.
        return number.parse().ok();
    }
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let scale = 10_u128.checked_pow(part.len().try_into().ok()?)?;
    let [whole, part] = [whole, part].map(|digits| digits.parse::<u64>().ok().map(u128::from));
    let factor = u128::from(factor);
    u64::try_from(whole? * factor + part? * factor / scale).ok()
}

/// How many bytes a unit has, in lower case: `mib`, `mb`, `m`, `b`, none.
fn factor(unit: &str) -> Option<u64> {
    let prefix = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(unit);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == prefix)?;
    (unit != "ib").then_some(*factor)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match whole.iter().find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size)) {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Span {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let refused = || QuantityError::Span(text.to_owned());
        match text.trim().parse::<f64>() {
            Ok(seconds) => Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| refused()),
            Err(_) => humantime::parse_duration(text.trim()).map(Self).map_err(|_| refused()),
        }
    }
}

impl Span {
    /// Reads a span as [`Span::from_str`] does, of which only the unit says how long it is: where a number alone may be
    /// meant as days.
    ///
    /// # Errors
    /// When it is none, or a number alone.
    pub fn with_unit(text: &str) -> Result<Self, QuantityError> {
        match text.trim().parse::<f64>() {
            Ok(_) => Err(QuantityError::NoUnit(text.trim().to_owned())),
            Err(_) => text.parse(),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl FromStr for Cpus {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Ok(Self(text.parse()?))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

struct Quantity<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = QuantityError>> Visitor<'_> for Quantity<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a number with its unit as text")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Quantity(std::marker::PhantomData)).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Quantity(std::marker::PhantomData)).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Quantity(std::marker::PhantomData)).map_err(D::Error::custom)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!("6MiB".parse(), Ok(Bytes(6 << 20)));
        assert_eq!(" 6 mib ".parse(), Ok(Bytes(6 << 20)));
        assert_eq!("2GB".parse(), Ok(Bytes(2 << 30)));
        assert_eq!("512mb".parse(), Ok(Bytes(512 << 20)));
        assert_eq!("17".parse(), Ok(Bytes(17)));
        assert_eq!("1.5 GiB".parse(), Ok(Bytes(3 << 29)));
        assert_eq!("0.001k".parse(), Ok(Bytes(1)));
        for (text, bytes) in [("512k", 512 << 10), ("100b", 100), ("1g", 1 << 30), ("2t", 2 << 40)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for bad in ["", "MiB", "-1", "6 apples", "99999999999GiB", "1e3MB", "1ib", "1bb", "1kibib"]
        {
            assert!(bad.parse::<Bytes>().is_err(), "{bad:?}");
        }
        for bad in ["1.5", "1.5B", "1.MiB", ".5MiB", "1.2.3MiB", "1.+5MiB"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_are_read_as_seconds_or_with_units() {
        assert_eq!("1.5".parse(), Ok(Span(Duration::from_millis(1500))));
        assert_eq!("500ms".parse(), Ok(Span(Duration::from_millis(500))));
        assert_eq!("10m".parse(), Ok(Span(Duration::from_secs(600))));
        for bad in ["", "-1", "soon", "NaN", "1e300"] {
            assert!(bad.parse::<Span>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_number_alone_is_no_time_where_it_may_be_meant_as_days() {
        assert_eq!(Span::with_unit("90d"), Ok(Span(Duration::from_secs(90 * 86400))));
        let refused = Span::with_unit("5").unwrap_err().to_string();
        assert!(refused.contains("5h or 5d"), "{refused}");
        assert!(Span::with_unit("soon").is_err());
    }

    #[test]
    fn a_size_is_written_as_it_is_read() {
        for size in [0, 17, 1 << 10, 6 << 20, 3 << 30, (6 << 20) + 1] {
            assert_eq!(Bytes(size).to_string().parse(), Ok(Bytes(size)));
        }
    }
}
