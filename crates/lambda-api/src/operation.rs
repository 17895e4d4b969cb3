//! The operations of the API.

use std::sync::LazyLock;

use crate::model::{Kind, MODEL, Shape, Structure};

/// One of the 91 operations.
#[derive(Debug)]
pub struct Operation {
    /// `CreateFunction`.
    pub name: &'static str,
    /// The method of its request, such as `POST`.
    pub method: &'static str,
    /// `/2015-03-31/functions/{FunctionName}`; may end in a query that tells operations apart.
    pub path: &'static str,
    /// Of an answer without an error. `DeleteFunction` and the three `Invoke`s answer others too.
    pub status: u16,
    /// The member of the input that is the whole body: `Payload`.
    pub payload: Option<&'static str>,
    pub(crate) segments: Vec<Segment>,
    /// Of the path: `("List", "ALL")`.
    pub(crate) query: Option<(&'static str, &'static str)>,
    pub(crate) input: &'static Structure,
}

/// What stands between two slashes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// This word and no other.
    Word(&'static str),
    /// Any, the value of this parameter.
    Label(&'static str),
}

static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let rows = MODEL.operations.iter();
    rows.map(|(name, facts)| {
        let (path, query) = facts.path.split_once('?').unzip();
        let path = path.unwrap_or(&facts.path);
        let segments = path.split('/').skip(1).map(|segment| {
            match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(label) => Segment::Label(label),
                None => Segment::Word(segment),
            }
        });
        let Shape { kind: Kind::Structure(input), .. } = MODEL.shape(&facts.input) else {
            panic!("{name}: an input is a structure")
        };
        Operation {
            name,
            method: &facts.method,
            path: &facts.path,
            status: facts.status,
            payload: input.payload.as_deref(),
            segments: segments.collect(),
            query: query.and_then(|query| query.split_once('=')),
            input,
        }
    })
    .collect()
});

impl Operation {
    /// All of them, by name.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &OPERATIONS
    }

    /// The operation of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let found = OPERATIONS.binary_search_by_key(&name, |operation| operation.name).ok()?;
        OPERATIONS.get(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_api_path;
    use crate::model::Location;

    #[test]
    fn every_path_has_the_parameters_of_its_input() {
        for operation in Operation::all() {
            assert!(is_api_path(operation.path), "{}", operation.path);
            let members = operation.input.members.values();
            let of_uri = members.filter(|member| member.1 == Location::Uri);
            let mut named: Vec<&str> = of_uri.map(|member| member.2.as_str()).collect();
            let mut labels = Vec::new();
            for segment in &operation.segments {
                match segment {
                    Segment::Label(label) => labels.push(*label),
                    // A label that takes several segments ends in `+}`: no operation has one.
                    Segment::Word(word) => assert!(!word.contains(['{', '}', '+', '?']), "{word}"),
                }
            }
            named.sort_unstable();
            labels.sort_unstable();
            assert_eq!(named, labels, "{}", operation.name);
        }
    }

    #[test]
    fn operations_are_found_by_name() {
        for operation in Operation::all() {
            assert!(std::ptr::eq(Operation::named(operation.name).unwrap(), operation));
        }
        assert!(Operation::named("Invok").is_none());
    }
}
