//! Sizes and durations as people write them.

use std::time::Duration;

use toml::Value;

/// Bytes from `"256MB"`, `"1.5 GiB"` or a number of megabytes. A megabyte is 2²⁰ bytes, as Lambda's is.
pub(super) fn bytes(value: &Value) -> Result<u64, String> {
    let reason =
        || "write a number of megabytes, or a text such as \"256MB\" or \"1GB\"".to_owned();
    let (number, unit) = match value {
        Value::Integer(number) => {
            (u32::try_from(*number).map_err(|_| reason())?.into(), "mb".to_owned())
        }
        Value::String(text) => split(text).ok_or_else(reason)?,
        _ => return Err(reason()),
    };
    let factor: u64 = match unit.as_str() {
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(reason()),
    };
    let limit: u64 = 1 << 40;
    let bytes = number * factor as f64;
    if !(1.0..=limit as f64).contains(&bytes) {
        return Err("it must be between 1 byte and 1024GB".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 2⁴⁰, checked above"
    )]
    Ok(bytes as u64)
}

/// A duration from `"30s"`, `"500ms"`, `"2m"` or a number of seconds.
pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    let reason =
        || "write a number of seconds, or a text such as \"30s\", \"500ms\" or \"2m\"".to_owned();
    let (number, unit) = match value {
        Value::Integer(number) => {
            (f64::from(u32::try_from(*number).map_err(|_| reason())?), "s".to_owned())
        }
        Value::Float(number) => (*number, "s".to_owned()),
        Value::String(text) => split(text).ok_or_else(reason)?,
        _ => return Err(reason()),
    };
    let factor = match unit.as_str() {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(reason()),
    };
    let seconds = number * factor;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err("it must be between 1 ms and 24 h".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// `"1.5 GiB"` → (1.5, "gib").
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim().to_ascii_lowercase()))
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
        for bad in ["", "MB", "-1MB", "1 TB", "256", "1e3MB", "1mbbb", "1kibib", "1ib", "1bb"] {
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
