//! Settings with several values.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Values of a setting: a list, or, because a variable holds none, one text with commas or blanks between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Listed<T>(pub Vec<T>);

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "write a list of texts")]
        enum Written {
            List(Vec<String>),
            Text(String),
        }
        let parse = |text: &str| text.parse().map_err(D::Error::custom);
        let values: Result<_, _> = match Written::deserialize(deserializer)? {
            Written::List(texts) => texts.iter().map(|text| parse(text)).collect(),
            Written::Text(text) => text
                .split(|c: char| c == ',' || c.is_whitespace())
                .filter(|one| !one.is_empty())
                .map(parse)
                .collect(),
        };
        values.map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_commas_or_blanks_between_its_values_and_a_list_is_taken_as_it_is() {
        let of = |value: toml::Value| value.try_into::<Listed<String>>().map(|listed| listed.0);
        for text in ["a,b", "a b", "a, b", " a\n b, "] {
            assert_eq!(of(text.into()).unwrap(), ["a", "b"], "{text:?}");
        }
        assert_eq!(of(" , ".into()).unwrap(), [""; 0]);
        assert_eq!(of(vec!["a,b", "c d"].into()).unwrap(), ["a,b", "c d"]);
        assert!(of(7.into()).unwrap_err().message().contains("write a list of texts"));
        assert!(toml::Value::from("1 x").try_into::<Listed<u8>>().is_err());
    }
}
