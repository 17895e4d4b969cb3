//! JSON and text of a request, made the types that the model has.
//!
//! The texts of its errors are those of the service's own deserialiser, as far as they are known.

use std::io;

use base64::engine::general_purpose::STANDARD;
use base64::read::DecoderReader;
use serde_json::{Map, Number, Value};

use crate::Fault;
use crate::model::{Kind, Location, MODEL, Member, Shape, Structure};

/// A value of a body, with the types of its shape. Members that the shape does not have are left
/// out, and so are those that are null. A blob stays base64. Where an integer is read, a number
/// loses its fraction, as in the service.
pub(crate) fn typed(shape: &Shape, value: Value) -> Result<Value, Fault> {
    match (&shape.kind, value) {
        (Kind::Structure(structure), value) => {
            Ok(Value::Object(typed_structure(structure, value)?))
        }
        (Kind::Map { value: shape, .. }, Value::Object(entries)) => {
            let shape = MODEL.shape(shape);
            let entries = entries.into_iter().filter(|(_, value)| !value.is_null());
            let entries = entries.map(|(key, value)| Ok((key, typed(shape, value)?)));
            Ok(Value::Object(entries.collect::<Result<_, Fault>>()?))
        }
        (Kind::List { of, .. }, Value::Array(elements)) => {
            let shape = MODEL.shape(of);
            let elements = elements.into_iter().map(|element| match element {
                // The constraints refuse it.
                Value::Null => Ok(Value::Null),
                element => typed(shape, element),
            });
            Ok(Value::Array(elements.collect::<Result<_, Fault>>()?))
        }
        (Kind::Blob { .. }, Value::String(text)) => {
            let mut decoder = DecoderReader::new(text.as_bytes(), &STANDARD);
            match io::copy(&mut decoder, &mut io::sink()) {
                Ok(_) => Ok(Value::String(text)),
                Err(_) => Err(Fault::serialization("A blob of the body is not valid base64")),
            }
        }
        (Kind::String { .. }, value @ Value::String(_))
        | (Kind::Boolean {}, value @ Value::Bool(_))
        | (Kind::Timestamp {}, value @ (Value::String(_) | Value::Number(_)))
        | (Kind::Double { .. }, value @ Value::Number(_)) => Ok(value),
        (Kind::Integer { .. }, Value::Number(number)) => match integer(&number) {
            Some(integer) if i32::try_from(integer).is_ok() => Ok(Value::from(integer)),
            _ => Err(mismatch(shape.into(), &Value::Number(number))),
        },
        (Kind::Long { .. }, Value::Number(number)) => match integer(&number) {
            Some(integer) => Ok(Value::from(integer)),
            None => Err(mismatch(shape.into(), &Value::Number(number))),
        },
        (_, value) => Err(mismatch(shape.into(), &value)),
    }
}

/// The members of a structure that stand in a body: see [`typed`].
pub(crate) fn typed_structure(
    structure: &Structure,
    value: Value,
) -> Result<Map<String, Value>, Fault> {
    let Value::Object(given) = value else { return Err(mismatch(Expected::Members, &value)) };
    let mut members = Map::new();
    for (name, value) in given {
        // A name of the path or the query means nothing in the body.
        if let Some(Member(shape, Location::Body, _)) = structure.members.get(&name)
            && !value.is_null()
        {
            members.insert(name, typed(MODEL.shape(shape), value)?);
        }
    }
    Ok(members)
}

/// A value of a path, a query or a header.
pub(crate) fn from_text(shape: &Shape, text: &str) -> Result<Value, Fault> {
    let value = match shape.kind {
        Kind::Boolean {} => text.parse().ok().map(Value::Bool),
        Kind::Integer { .. } => text.parse::<i32>().ok().map(Value::from),
        Kind::Long { .. } => text.parse::<i64>().ok().map(Value::from),
        _ => Some(Value::from(text)),
    };
    value.ok_or_else(|| mismatch(shape.into(), &Value::from(text)))
}

fn integer(number: &Number) -> Option<i64> {
    if number.is_f64() {
        let whole = number.as_f64()?.trunc();
        // All integers in this range are exact.
        #[expect(clippy::cast_possible_truncation, reason = "the range is looked at")]
        return (whole.abs() < 9e15).then_some(whole as i64);
    }
    number.as_i64()
}

/// A value of another type than is read.
fn mismatch(expected: Expected, value: &Value) -> Fault {
    let scalar = match value {
        Value::Array(_) => return Fault::serialization("Start of list found where not expected"),
        Value::Object(_) => {
            let message = "Start of structure or map found where not expected.";
            return Fault::serialization(message);
        }
        Value::Null => "NULL_VALUE",
        Value::Bool(true) => "TRUE_VALUE",
        Value::Bool(false) => "FALSE_VALUE",
        Value::Number(_) => "NUMBER_VALUE",
        Value::String(_) => "STRING_VALUE",
    };
    Fault::serialization(match expected {
        Expected::List => "Expected list or null".to_owned(),
        Expected::Members => "Unexpected value type in payload".to_owned(),
        Expected::One(kind) => format!("{scalar} can not be converted to {kind}"),
    })
}

enum Expected {
    List,
    /// Of a structure or a map.
    Members,
    /// With its article.
    One(&'static str),
}

impl From<&Shape> for Expected {
    fn from(shape: &Shape) -> Self {
        match shape.kind {
            Kind::List { .. } => Self::List,
            Kind::Structure(_) | Kind::Map { .. } => Self::Members,
            Kind::String { .. } => Self::One("a String"),
            Kind::Blob { .. } => Self::One("a Blob"),
            Kind::Integer { .. } => Self::One("an Integer"),
            Kind::Long { .. } => Self::One("a Long"),
            Kind::Double { .. } => Self::One("a Double"),
            Kind::Boolean {} => Self::One("a Boolean"),
            Kind::Timestamp {} => Self::One("a Date"),
        }
    }
}
