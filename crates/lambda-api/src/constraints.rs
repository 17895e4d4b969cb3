//! What a value must satisfy, and what is said of one that does not.
//!
//! ```text
//!   2 validation errors detected:
//!     Value '0' at 'timeout' failed to satisfy constraint: Member must have value greater than …;
//!     Value null at 'role' failed to satisfy constraint: Member must not be null
//! ```
//! A list of plain values has one violation for all of its elements, and so have the keys and the
//! values of a map:
//!
//! ```text
//!     Value '[a, b]' at 'x' failed to satisfy constraint:
//!       Member must satisfy constraint: [each constraint of an element]
//! ```
//! A structure in a list has a place, from 1: `x.1.member.y`.

use std::fmt;

use serde_json::{Map, Number, Value};

use crate::Fault;
use crate::fault::shortened;
use crate::model::{Kind, Length, MODEL, Member, Pattern, Range, Shape, Structure};

/// After so many violations no further element is looked at.
const MAX_VIOLATIONS: usize = 100;

/// Whether an input, which has the types of the model, satisfies its constraints.
///
/// # Errors
///
/// `ValidationException` that tells of all violations.
pub(crate) fn check(
    structure: &Structure,
    members: &Map<String, Value>,
    payload: &[u8],
) -> Result<(), Fault> {
    let mut found = Violations::default();
    found.structure(structure, members, "");
    let member = structure.payload.as_ref().and_then(|name| structure.members.get_key_value(name));
    if let Some((name, Member(shape, ..))) = member
        && let Kind::Blob { length } = &MODEL.shape(shape).kind
    {
        found.blob(length, payload.len(), &camel(name));
    }
    if found.all.is_empty() { Ok(()) } else { Err(Fault::violations(&found.all)) }
}

#[derive(Default)]
struct Violations {
    all: Vec<String>,
}

impl Violations {
    fn structure(&mut self, structure: &Structure, members: &Map<String, Value>, path: &str) {
        let missing = structure.required.iter().filter(|name| !members.contains_key(*name));
        // The payload is bytes, which may be none: it does not stand among the members.
        for name in missing.filter(|name| structure.payload.as_ref() != Some(*name)) {
            let place = below(path, &camel(name));
            self.add(&format!("Value null at '{place}'"), "Member must not be null");
        }
        for (name, value) in members {
            if let Some(Member(shape, ..)) = structure.members.get(name) {
                self.value(shape, value, &below(path, &camel(name)));
            }
        }
    }

    fn value(&mut self, shape: &str, value: &Value, path: &str) {
        let shape = MODEL.shape(shape);
        for constraint in constraints(shape) {
            if !constraint.holds(value) {
                self.add(&subject(shape, value, path), &constraint.to_string());
            }
        }
        match (&shape.kind, value) {
            (Kind::Structure(structure), Value::Object(members)) => {
                self.structure(structure, members, path);
            }
            (Kind::Blob { length }, Value::String(text)) => {
                let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
                self.blob(length, text.len() / 4 * 3 - padding, path);
            }
            (Kind::List { of, .. }, Value::Array(elements)) => {
                self.together(shape, value, path, "Member", of, elements.iter());
                for (place, element) in (1..).zip(elements).filter(|_| nested(of)) {
                    if self.all.len() >= MAX_VIOLATIONS {
                        break;
                    }
                    self.value(of, element, &format!("{path}.{place}.member"));
                }
            }
            (Kind::Map { key, value: of, .. }, Value::Object(entries)) => {
                let keys: Vec<Value> =
                    entries.keys().map(|key| Value::from(key.as_str())).collect();
                self.together(shape, value, path, "Map keys", key, keys.iter());
                self.together(shape, value, path, "Map value", of, entries.values());
                for (key, entry) in entries.iter().filter(|_| nested(of)) {
                    if self.all.len() >= MAX_VIOLATIONS {
                        break;
                    }
                    self.value(of, entry, &format!("{path}.{}.member", shortened(key)));
                }
            }
            _ => {}
        }
    }

    /// A blob of that many bytes.
    fn blob(&mut self, length: &Length, bytes: usize, path: &str) {
        let above = length.max.filter(|max| bytes > *max).map(Constraint::MaxLength);
        let below = length.min.filter(|min| bytes < *min).map(Constraint::MinLength);
        for limit in above.into_iter().chain(below) {
            self.add(&format!("Value at '{path}'"), &limit.to_string());
        }
    }

    /// What the elements of a list, or the keys or the values of a map, must satisfy.
    fn together<'a>(
        &mut self,
        shape: &Shape,
        whole: &Value,
        path: &str,
        who: &str,
        of: &str,
        mut elements: impl Iterator<Item = &'a Value>,
    ) {
        // A nested one tells of its own violations.
        let mut all = if nested(of) { Vec::new() } else { constraints(MODEL.shape(of)) };
        if who != "Map value" {
            all.push(Constraint::NotNull);
        }
        if elements.any(|element| !all.iter().all(|constraint| constraint.holds(element))) {
            let all: Vec<String> = all.iter().map(Constraint::to_string).collect();
            let all = format!("{who} must satisfy constraint: [{}]", all.join(", "));
            self.add(&subject(shape, whole, path), &all);
        }
    }

    fn add(&mut self, subject: &str, constraint: &str) {
        self.all.push(format!("{subject} failed to satisfy constraint: {constraint}"));
    }
}

fn nested(shape: &str) -> bool {
    matches!(MODEL.shape(shape).kind, Kind::Structure(_) | Kind::List { .. } | Kind::Map { .. })
}

fn subject(shape: &Shape, value: &Value, path: &str) -> String {
    if shape.sensitive {
        return format!("Value at '{path}'");
    }
    format!("Value '{}' at '{path}'", shortened(&printed(shape, value)))
}

/// As the service prints it: `[a, b]`, `{k=v}`.
fn printed(shape: &Shape, value: &Value) -> String {
    let entry = |name: &str, of: &str, value| format!("{name}={}", printed(MODEL.shape(of), value));
    let members = |all: Vec<String>| format!("{{{}}}", all.join(", "));
    match (&shape.kind, value) {
        _ if shape.sensitive => "***".to_owned(),
        (_, Value::String(text)) => text.clone(),
        (Kind::List { of, .. }, Value::Array(elements)) => {
            let of = MODEL.shape(of);
            let elements: Vec<String> = elements.iter().map(|one| printed(of, one)).collect();
            format!("[{}]", elements.join(", "))
        }
        (Kind::Map { value: of, .. }, Value::Object(entries)) => {
            members(entries.iter().map(|(key, value)| entry(key, of, value)).collect())
        }
        (Kind::Structure(structure), Value::Object(given)) => {
            let known = given.iter().filter_map(|(name, value)| {
                Some(entry(&camel(name), &structure.members.get(name)?.0, value))
            });
            members(known.collect())
        }
        (_, other) => other.to_string(),
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// `functionName` of `FunctionName`, and `kMSKeyArn` of `KMSKeyArn`.
fn camel(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

enum Constraint<'a> {
    MaxLength(usize),
    MinLength(usize),
    MaxValue(&'a Number),
    MinValue(&'a Number),
    /// With the longest text that it is tried on.
    Pattern(&'a Pattern, usize),
    OneOf(&'a [String]),
    NotNull,
}

/// Those of the value itself, in the order in which the service names them.
fn constraints(shape: &Shape) -> Vec<Constraint<'_>> {
    let of_length = |length: &Length| {
        let (max, min) = (length.max.map(Constraint::MaxLength), length.min);
        max.into_iter().chain(min.map(Constraint::MinLength)).collect()
    };
    match &shape.kind {
        Kind::String { length, pattern, r#enum } => {
            let mut all: Vec<_> = of_length(length);
            let longest = length.max.unwrap_or(usize::MAX);
            all.extend(pattern.as_ref().map(|pattern| Constraint::Pattern(pattern, longest)));
            all.extend(r#enum.as_ref().map(|values| Constraint::OneOf(values)));
            all
        }
        Kind::List { length, .. } | Kind::Map { length, .. } => of_length(length),
        Kind::Integer { range } | Kind::Long { range } | Kind::Double { range } => {
            let Range { max, min } = range;
            let max = max.as_ref().map(Constraint::MaxValue);
            max.into_iter().chain(min.as_ref().map(Constraint::MinValue)).collect()
        }
        // The length of a blob is not that of its text.
        Kind::Structure(_) | Kind::Blob { .. } | Kind::Boolean {} | Kind::Timestamp {} => {
            Vec::new()
        }
    }
}

impl Constraint<'_> {
    fn holds(&self, value: &Value) -> bool {
        match self {
            Self::MaxLength(most) => length(value) <= *most,
            Self::MinLength(least) => length(value) >= *least,
            Self::MaxValue(most) => value.as_f64() <= most.as_f64(),
            Self::MinValue(least) => value.as_f64() >= least.as_f64(),
            Self::Pattern(pattern, longest) => {
                // One that is too long is told of by its length alone.
                value.as_str().is_some_and(|text| length(value) > *longest || pattern.fits(text))
            }
            Self::OneOf(values) => {
                value.as_str().is_some_and(|text| values.iter().any(|one| one == text))
            }
            Self::NotNull => !value.is_null(),
        }
    }
}

/// Of characters, elements or entries.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(elements) => elements.len(),
        Value::Object(entries) => entries.len(),
        _ => 0,
    }
}

impl fmt::Display for Constraint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxLength(most) => {
                write!(f, "Member must have length less than or equal to {most}")
            }
            Self::MinLength(least) => {
                write!(f, "Member must have length greater than or equal to {least}")
            }
            Self::MaxValue(most) => {
                write!(f, "Member must have value less than or equal to {most}")
            }
            Self::MinValue(least) => {
                write!(f, "Member must have value greater than or equal to {least}")
            }
            Self::Pattern(pattern, _) => {
                write!(f, "Member must satisfy regular expression pattern: {}", pattern.text)
            }
            Self::OneOf(values) => {
                write!(f, "Member must satisfy enum value set: [{}]", values.join(", "))
            }
            Self::NotNull => f.write_str("Member must not be null"),
        }
    }
}
