//! What `model.json` holds. The file is part of the program: an error in it is a panic, and a test
//! of this module reads all of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, OnceLock};

use fancy_regex::Regex;
use serde::Deserialize;
use serde_json::Number;

pub(crate) static MODEL: LazyLock<Model> = LazyLock::new(|| {
    serde_json::from_str(include_str!("model.json")).expect("generate.py writes what is read here")
});

#[derive(Debug, Deserialize)]
pub(crate) struct Model {
    pub(crate) operations: BTreeMap<String, OperationFacts>,
    pub(crate) shapes: HashMap<String, Shape>,
    pub(crate) errors: HashMap<String, ErrorFacts>,
}

impl Model {
    pub(crate) fn shape(&self, name: &str) -> &Shape {
        self.shapes.get(name).expect("the model has the shapes that it names")
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct OperationFacts {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: u16,
    /// The name of a structure.
    pub(crate) input: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ErrorFacts {
    pub(crate) status: u16,
    /// The key of the text in the body: `message` or `Message`.
    pub(crate) text: String,
    /// Whether it is the client's fault: the body then says `"Type": "User"`.
    pub(crate) sender: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Shape {
    /// Its values stand in no message.
    #[serde(default)]
    pub(crate) sensitive: bool,
    #[serde(flatten)]
    pub(crate) kind: Kind,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Kind {
    Structure(Structure),
    List {
        of: String,
        #[serde(flatten)]
        length: Length,
    },
    Map {
        key: String,
        value: String,
        #[serde(flatten)]
        length: Length,
    },
    String {
        #[serde(flatten)]
        length: Length,
        pattern: Option<Pattern>,
        r#enum: Option<Vec<String>>,
    },
    Blob {
        #[serde(flatten)]
        length: Length,
    },
    /// An integer of 32 bits.
    Integer {
        #[serde(flatten)]
        range: Range,
    },
    /// An integer of 64 bits.
    Long {
        #[serde(flatten)]
        range: Range,
    },
    Double {
        #[serde(flatten)]
        range: Range,
    },
    Boolean {},
    /// Seconds since 1970 in a body, ISO 8601 in a query.
    Timestamp {},
}

#[derive(Debug, Deserialize)]
pub(crate) struct Structure {
    pub(crate) members: BTreeMap<String, Member>,
    pub(crate) required: Vec<String>,
    /// The member that is the whole body.
    pub(crate) payload: Option<String>,
}

/// Shape, place, and name there.
#[derive(Debug, Deserialize)]
pub(crate) struct Member(pub(crate) String, pub(crate) Location, pub(crate) String);

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Location {
    Uri,
    QueryString,
    Header,
    Body,
}

/// Of characters, elements, entries, or bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Length {
    pub(crate) min: Option<usize>,
    pub(crate) max: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Range {
    pub(crate) min: Option<Number>,
    pub(crate) max: Option<Number>,
}

/// Compiled when it is first used.
#[derive(Debug, Deserialize)]
#[serde(from = "String")]
pub(crate) struct Pattern {
    /// As the service prints it.
    pub(crate) text: String,
    compiled: OnceLock<Regex>,
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        Self { text, compiled: OnceLock::new() }
    }
}

impl Pattern {
    /// Whether it fits the whole value. A pattern that looks ahead or back may give up, which is
    /// "no": see the test that bounds the length of what such patterns are tried on.
    pub(crate) fn fits(&self, value: &str) -> bool {
        self.compiled.get_or_init(|| self.compile()).is_match(value).unwrap_or(false)
    }

    /// The service's patterns are Java's, where `\d` means ten digits and no more.
    fn compile(&self) -> Regex {
        let text = self.text.replace(r"\d", "[0-9]");
        Regex::new(&format!(r"\A(?:{text})\z")).expect("a test compiles all patterns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_exists_and_every_pattern_compiles() {
        assert_eq!(MODEL.operations.len(), 91);
        for shape in MODEL.shapes.values() {
            match &shape.kind {
                Kind::Structure(Structure { members, required, payload }) => {
                    for Member(name, ..) in members.values() {
                        MODEL.shape(name);
                    }
                    assert!(required.iter().chain(payload).all(|name| members.contains_key(name)));
                }
                Kind::List { of, .. } => drop(MODEL.shape(of)),
                Kind::Map { key, value, .. } => drop((MODEL.shape(key), MODEL.shape(value))),
                Kind::String { pattern: Some(pattern), .. } => drop(pattern.compile()),
                _ => {}
            }
        }
    }

    /// Without lookaround a pattern is matched in one pass. With it the matcher goes back.
    #[test]
    fn a_pattern_that_looks_around_sees_short_values_alone() {
        let mut looks_around = 0;
        for (name, shape) in &MODEL.shapes {
            let Kind::String { length, pattern: Some(pattern), .. } = &shape.kind else { continue };
            if ["(?=", "(?!", "(?<"].iter().any(|group| pattern.text.contains(group)) {
                looks_around += 1;
                assert!(length.max.is_some_and(|max| max <= 140), "{name}: {length:?}");
            }
        }
        assert_eq!(looks_around, 5);
    }

    /// A nested repetition takes a naive matcher minutes, and a lookahead is tried at each place.
    #[test]
    fn no_value_makes_a_pattern_run_away() {
        let started = std::time::Instant::now();
        for (name, shape) in &MODEL.shapes {
            let Kind::String { length, pattern: Some(pattern), .. } = &shape.kind else { continue };
            for piece in ["a", "1", "a-", "a.", "arn:", "us-east-1:", "function:", "$LATEST", "/"] {
                let longest = length.max.unwrap_or(100_000);
                let mut value = piece.repeat(longest / piece.len());
                value.pop();
                value.push('!');
                let fits = pattern.fits(&value);
                assert!(!(fits && name == "Endpoint"), "{value}");
            }
        }
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }

    #[test]
    fn digits_are_ascii_and_a_pattern_fits_the_whole() {
        let fits = |shape: &str, value: &str| {
            let Kind::String { pattern: Some(pattern), .. } = &MODEL.shape(shape).kind else {
                panic!("{shape}")
            };
            pattern.fits(value)
        };
        assert!(fits("SourceOwner", "123456789012"));
        assert!(!fits("SourceOwner", "١٢٣٤٥٦٧٨٩٠١٢"));
        assert!(!fits("SourceOwner", "123456789012\n"));
        assert!(!fits("Alias", "12"));
        assert!(fits("Alias", "12a"));
        assert!(!fits("S3Bucket", "bucket."));
        assert!(fits("TagKey", "été_1"));
    }
}
