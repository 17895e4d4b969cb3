//! How many lines a reply goes back.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};

/// The number of lines unless said otherwise.
pub(super) const USUAL: u32 = 100;

/// What may be asked for. The description says it, too.
pub const MOST: u32 = 100_000;

/// Reads how many were asked for.
///
/// # Errors
/// When it is no number, or too many: a client would not know that it got fewer than it asked for.
pub(super) fn lines<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    // Wider than what may be asked for, so that far too many are told the same as a few.
    match Option::<u64>::deserialize(from)?.map(u32::try_from) {
        Some(Ok(asked)) if asked <= MOST => Ok(Some(asked)),
        Some(_) => Err(D::Error::custom(format!("at most {MOST} lines"))),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::Query;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Asked {
        #[serde(default, deserialize_with = "lines")]
        lines: Option<u32>,
    }

    #[test]
    fn more_lines_than_may_be_asked_for_are_refused_and_not_cut_down() {
        let asked = |query: &str| {
            let uri = format!("/v1/audit?{query}").parse().unwrap();
            let asked = Query::<Asked>::try_from_uri(&uri);
            asked.map(|query| query.0.lines).map_err(|refused| refused.body_text())
        };
        assert_eq!((asked(""), asked("lines=100000")), (Ok(None), Ok(Some(MOST))));
        for many in ["100001", "5000000000"] {
            let refused = asked(&format!("lines={many}")).unwrap_err();
            assert!(refused.contains("at most 100000 lines"), "{refused}");
        }
    }
}
