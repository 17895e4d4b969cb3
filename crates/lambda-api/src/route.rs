//! Which operation a request asks for.

use std::collections::HashMap;
use std::sync::LazyLock;

use percent_encoding::percent_decode_str;

use crate::operation::Segment;
use crate::{Fault, Operation};

/// An operation, and what the path says.
#[derive(Clone, Debug)]
pub struct Route {
    /// What is asked for.
    pub operation: &'static Operation,
    /// Name and decoded value of each label of the path, in its order.
    pub parameters: Vec<(&'static str, String)>,
}

impl Route {
    /// The decoded value of this label of the path.
    #[must_use]
    pub fn parameter(&self, label: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(name, _)| *name == label);
        found.map(|(_, value)| value.as_str())
    }
}

/// The operations of each date. Those that a query tells apart come first.
static BY_DATE: LazyLock<HashMap<&'static str, Vec<&'static Operation>>> = LazyLock::new(|| {
    let mut by_date: HashMap<_, Vec<_>> = HashMap::new();
    for operation in Operation::all() {
        let Some(Segment::Word(date)) = operation.segments.first() else {
            panic!("{}: a path begins with a date", operation.name)
        };
        by_date.entry(*date).or_default().push(operation);
    }
    by_date.values_mut().for_each(|rows| rows.sort_by_key(|row| row.query.is_none()));
    by_date
});

/// Whether a path begins with the date of an API: `/2015-03-31` and then a slash or nothing.
#[must_use]
pub fn is_api_path(path: &str) -> bool {
    let Some(date) = path.strip_prefix('/').and_then(|rest| rest.split('/').next()) else {
        return false;
    };
    let fits = |(place, byte): (usize, u8)| match place {
        0 => byte == b'2',
        1 => byte == b'0',
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    date.len() == 10 && date.bytes().enumerate().all(fits)
}

/// The operation of a request. `path` and `query` are as they stand in the URL, percent-encoded.
///
/// # Errors
///
/// `UnknownOperationException` for a path that no operation has. For a known path with another
/// method, `AccessDeniedException` in the service's words: it asks first which operation the caller
/// must be allowed, and finds none.
pub fn route(method: &str, path: &str, query: &str) -> Result<Route, Fault> {
    // Old SDKs end paths in a slash.
    let words = path.strip_prefix('/').unwrap_or_default();
    let words = words.strip_suffix('/').unwrap_or(words);
    let segments: Vec<&str> = words.split('/').collect();
    let candidates = segments.first().and_then(|date| BY_DATE.get(date));
    let mut known = false;
    for operation in candidates.into_iter().flatten() {
        if let Some(parameters) = fit(operation, &segments, query) {
            if operation.method == method {
                return Ok(Route { operation, parameters: decoded(parameters) });
            }
            known = true;
        }
    }
    Err(if known { Fault::unknown_method() } else { Fault::unknown_operation(method, path) })
}

/// The parameters, encoded, if the operation's path fits.
fn fit<'a>(
    operation: &'static Operation,
    segments: &[&'a str],
    query: &str,
) -> Option<Vec<(&'static str, &'a str)>> {
    if operation.segments.len() != segments.len() {
        return None;
    }
    let mut parameters = Vec::new();
    for (expected, segment) in operation.segments.iter().zip(segments) {
        match expected {
            Segment::Word(word) if word == segment => {}
            Segment::Label(label) if !segment.is_empty() => parameters.push((*label, *segment)),
            _ => return None,
        }
    }
    let Some(wanted) = operation.query else { return Some(parameters) };
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.any(|(key, value)| (key.as_ref(), value.as_ref()) == wanted).then_some(parameters)
}

fn decoded(parameters: Vec<(&'static str, &str)>) -> Vec<(&'static str, String)> {
    let decode = |value| percent_decode_str(value).decode_utf8_lossy().into_owned();
    parameters.into_iter().map(|(label, value)| (label, decode(value))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_of_an_api_begin_with_its_date() {
        for path in ["/2015-03-31", "/2015-03-31/", "/2015-03-31/functions", "/2099-99-99/x"] {
            assert!(is_api_path(path), "{path}");
        }
        for path in ["", "/", "2015-03-31/", "/2015-03-31x", "/1999-03-31/", "/v1/2015-03-31/"] {
            assert!(!is_api_path(path), "{path}");
        }
    }

    #[test]
    fn encoded_arns_and_trailing_slashes_are_read() {
        let path = "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A123456789012%3A\
                    function%3Af/invocations";
        let found = route("POST", path, "").unwrap();
        assert_eq!(found.operation.name, "Invoke");
        let arn = "arn:aws:lambda:us-east-1:123456789012:function:f";
        assert_eq!(found.parameter("FunctionName"), Some(arn));
        let found = route("GET", "/2015-03-31/functions/", "MaxItems=1").unwrap();
        assert_eq!(found.operation.name, "ListFunctions");
        // A slash that is encoded does not divide the path, and a plus is no blank.
        let found = route("GET", "/2017-03-31/tags/a%2Fb+c", "").unwrap();
        assert_eq!(found.parameter("Resource"), Some("a/b+c"));
        let found = route("GET", "/2017-03-31/tags/%ff", "").unwrap();
        assert_eq!(found.parameter("Resource"), Some("\u{fffd}"));
    }

    #[test]
    fn a_query_tells_operations_apart() {
        let provisioned = "/2019-09-30/functions/f/provisioned-concurrency";
        let layers = "/2018-10-31/layers";
        for (path, query, name) in [
            (provisioned, "List=ALL", "ListProvisionedConcurrencyConfigs"),
            (provisioned, "MaxItems=3&List=ALL", "ListProvisionedConcurrencyConfigs"),
            (provisioned, "Qualifier=1", "GetProvisionedConcurrencyConfig"),
            (layers, "find=LayerVersion&Arn=x", "GetLayerVersionByArn"),
            (layers, "", "ListLayers"),
            (layers, "find=Other", "ListLayers"),
        ] {
            assert_eq!(route("GET", path, query).unwrap().operation.name, name, "{query}");
        }
    }

    #[test]
    fn an_unknown_path_is_404_and_another_method_403() {
        for path in [
            "",
            "/",
            "//",
            "/2015-03-31",
            "/2015-03-31/functions//",
            "/2015-03-31/functions//invocations",
            "/2015-03-31/nothing/f",
            "2015-03-31/functions",
            "x/2015-03-31/functions",
        ] {
            let fault = route("POST", path, "").unwrap_err();
            assert_eq!(
                (fault.code(), fault.status()),
                ("UnknownOperationException", 404),
                "{path}"
            );
        }
        let fault = route("GET", "/2015-03-31/functions/f/invocations", "").unwrap_err();
        assert_eq!((fault.code(), fault.status()), ("AccessDeniedException", 403));
    }

    proptest! {
        #[test]
        fn every_operation_is_found_by_its_own_path(
            which in 0..Operation::all().len(),
            values in prop::collection::vec(r"[^\x00-\x1f]{1,20}", 4),
            slash in any::<bool>(),
            query in "(&?[a-zA-Z]{1,5}=[a-z0-9%+]{0,5}){0,3}",
        ) {
            let operation = &Operation::all()[which];
            let all = percent_encoding::NON_ALPHANUMERIC;
            let (mut path, mut given, mut values) = (String::new(), Vec::new(), values.into_iter());
            for segment in &operation.segments {
                path.push('/');
                match segment {
                    Segment::Word(word) => path.push_str(word),
                    Segment::Label(label) => {
                        let value = values.next().unwrap();
                        path.extend(percent_encoding::utf8_percent_encode(&value, all));
                        given.push((*label, value));
                    }
                }
            }
            if slash {
                path.push('/');
            }
            let query = operation.query.map_or(query, |(key, value)| format!("{key}={value}"));
            let found = route(operation.method, &path, &query).unwrap();
            prop_assert_eq!(found.operation.name, operation.name);
            prop_assert_eq!(found.parameters, given);
        }

        #[test]
        fn any_text_is_routed_or_refused(
            method in "GET|POST|.{0,8}",
            path in "/{0,2}(2015-03-31|2018-10-31|.{0,9}|/|functions|layers|policy){0,9}",
            query in ".{0,40}",
        ) {
            if let Ok(found) = route(&method, &path, &query) {
                prop_assert!(is_api_path(&path));
                prop_assert_eq!(found.operation.method, method);
            }
        }
    }
}
