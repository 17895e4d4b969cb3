//! Sizes and durations in a function's table: texts with a unit, or numbers of the unit that Lambda takes.

use std::time::Duration;

use function::quantity::{Bytes, Span};
use toml::Value;

/// Bytes from `"256MB"`, `"1.5 GiB"` or a number of megabytes. A megabyte is 2²⁰ bytes, as Lambda's is.
pub(super) fn bytes(value: &Value) -> Result<u64, String> {
    let bytes = match value {
        Value::Integer(number) => u32::try_from(*number).ok().map(|number| u64::from(number) << 20),
        // Without a unit it may be meant as bytes or as megabytes.
        Value::String(text) if text.trim().parse::<f64>().is_err() => {
            text.parse().ok().map(|Bytes(bytes)| bytes)
        }
        _ => None,
    };
    let reason = "write a number of megabytes, or a text such as \"256MB\" or \"1GB\"";
    let bytes = bytes.ok_or(reason)?;
    if !(1..=1 << 40).contains(&bytes) {
        return Err("it must be between 1 byte and 1024GB".to_owned());
    }
    Ok(bytes)
}

/// A duration from `"30s"`, `"500ms"`, `"2m"` or a number of seconds.
pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    let duration = match value {
        Value::Integer(number) => {
            u32::try_from(*number).ok().map(|seconds| Duration::from_secs(seconds.into()))
        }
        Value::Float(number) => Duration::try_from_secs_f64(*number).ok(),
        Value::String(text) => {
            Span::with_unit(&text.to_ascii_lowercase()).ok().map(|Span(duration)| duration)
        }
        _ => None,
    };
    let reason = "write a number of seconds, or a text such as \"30s\", \"500ms\" or \"2m\"";
    let duration = duration.ok_or(reason)?;
    if !(Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&duration) {
        return Err("it must be between 1 ms and 24 h".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let of = |text: &str| bytes(&Value::from(text));
        assert_eq!(of("256MB").unwrap(), 256 << 20);
        assert_eq!(of("1.5 GiB").unwrap(), 3 << 29);
        assert_eq!(of("512k").unwrap(), 512 << 10);
        assert_eq!(of("100b").unwrap(), 100);
        assert_eq!(bytes(&Value::from(64)).unwrap(), 64 << 20);
        for bad in ["", "MB", "-1MB", "256", "256.5", "1e3MB", "1mbbb", "1kibib", "1ib", "1bb"] {
            assert!(of(bad).unwrap_err().contains("a text such as"), "{bad}");
        }
        assert_eq!(of("1024GB").unwrap(), 1 << 40);
        for beyond in ["0MB", "1025GB", "9999999GB"] {
            assert!(of(beyond).unwrap_err().ends_with("1024GB"), "{beyond}");
        }
        assert!(bytes(&Value::from(-1)).is_err() && bytes(&Value::from(true)).is_err());
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        let of = |text: &str| duration(&Value::from(text));
        assert_eq!(of("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(of("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(of("2m").unwrap(), Duration::from_secs(120));
        assert_eq!(duration(&Value::from(1.5)).unwrap(), Duration::from_millis(1500));
        assert!(of("0s").is_err() && of("25h").is_err() && of("soon").is_err());
        assert!(duration(&Value::from(f64::NAN)).is_err());
    }
}
