//! Lists, a page at a time.

use base64::prelude::*;
use lambda_api::Fault;
use serde::Deserialize;

/// The members by which a list of one function is asked for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AskedPage {
    pub(super) function_name: String,
    pub(super) marker: Option<String>,
    pub(super) max_items: Option<usize>,
}

/// The longest page, whatever is asked for: the service's own limit.
const PAGE: usize = 50;

/// The part of a list that begins behind the marker, and the marker of the next part. `key` is what the list is sorted by.
///
/// # Errors
/// When the marker is none of ours.
pub(super) fn page<T>(
    mut all: Vec<T>,
    key: impl Fn(&T) -> String,
    marker: Option<&str>,
    most: Option<usize>,
) -> Result<(Vec<T>, Option<String>), Fault> {
    if let Some(marker) = marker.filter(|marker| !marker.is_empty()) {
        let bytes = BASE64_URL_SAFE_NO_PAD
            .decode(marker)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        let last = bytes.ok_or_else(|| Fault::invalid_parameter_value("Invalid marker."))?;
        let behind = all.partition_point(|one| key(one) <= last);
        all.drain(..behind);
    }
    let most = most.unwrap_or(PAGE).clamp(1, PAGE);
    if all.len() <= most {
        return Ok((all, None));
    }
    all.truncate(most);
    let next = all.last().map(|last| BASE64_URL_SAFE_NO_PAD.encode(key(last)));
    Ok((all, next))
}

/// A number as part of a key: it sorts as it counts.
pub(super) fn of_number(number: u32) -> String {
    format!("{number:010}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_a_gap_though_an_entry_is_removed_between() {
        let list = |gone: Option<u32>| (0..120).filter(|n| Some(*n) != gone).collect::<Vec<u32>>();
        let key = |number: &u32| of_number(*number);
        let (first, marker) = page(list(None), key, None, Some(10_000)).unwrap();
        assert_eq!((first.len(), first[49]), (50, 49));
        // The entry that the marker names is gone.
        let (second, marker) = page(list(Some(49)), key, marker.as_deref(), Some(20)).unwrap();
        assert_eq!((second[0], second.len()), (50, 20));
        let (third, last) = page(list(None), key, marker.as_deref(), None).unwrap();
        assert_eq!((third[0], third.len(), last), (70, 50, None));
        assert!(page(list(None), key, Some("no marker!"), None).is_err());
        assert_eq!(page(list(None), key, Some(""), Some(1)).unwrap().0, [0]);
    }
}
