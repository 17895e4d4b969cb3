//! Reads JSON of strangers into a tree of bounded size. A value in memory takes far more than its text: seven bytes can
//! become hundreds.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Most values of one body: ten times what the largest request of the service has.
const MOST: usize = 20_000;

/// Reads a body.
///
/// # Errors
/// When it is no JSON, or of too many values.
pub(crate) fn value(body: &[u8]) -> serde_json::Result<Value> {
    let left = Cell::new(MOST);
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Bounded { left: &left }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// A value, and how many more there may be.
#[derive(Clone, Copy)]
struct Bounded<'a> {
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let left = self.left.get().checked_sub(1);
        self.left.set(
            left.ok_or_else(|| D::Error::custom(format!("a request has at most {MOST} values")))?,
        );
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            all.push(element);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(self)?;
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_as_it_is_and_one_of_too_many_values_is_refused() {
        let text = br#" {"a": [1, -2, 2.5, true, null, "\u00fc\n"], "b": {"a": {}}, "a2": []} "#;
        assert_eq!(value(text).unwrap(), serde_json::from_slice::<Value>(text).unwrap());
        for bad in ["", "{", "[1] 2", "nul", "{'a': 1}", "\"\\x\""] {
            assert!(value(bad.as_bytes()).is_err(), "{bad}");
        }
        let many = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        assert!(value(many(MOST - 1).as_bytes()).is_ok());
        for long in [many(MOST), format!("{{\"x\":[{}]}}", vec!["{\"\":0}"; MOST].join(","))] {
            let refused = value(long.as_bytes()).unwrap_err().to_string();
            assert!(refused.contains("at most 20000 values"), "{refused}");
        }
        // As deep as JSON is read at all.
        assert!(value(format!("{}{}", "[".repeat(200), "]".repeat(200)).as_bytes()).is_err());
    }
}
