//! What a request says, gathered from its path, query, headers and body.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::bounded;
use crate::model::{Kind, Location, MODEL, Member, Structure};
use crate::typed::{from_text, typed, typed_structure};
use crate::{Fault, Route, constraints};

/// The input of an operation, which satisfies the model's constraints.
#[derive(Debug)]
pub struct Input<'b> {
    /// By the members' own names: `FunctionName`. Blobs are base64. None is null.
    pub members: Map<String, Value>,
    /// The body, of an operation that has a payload of bytes: `Operation::payload`. Else empty.
    pub payload: &'b [u8],
}

impl Input<'_> {
    /// The members as a structure of the caller, which names them as the model does and makes
    /// optional what the model does not require.
    ///
    /// # Errors
    ///
    /// `SerializationException` when the structure asks for more than the model.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Fault> {
        serde_json::from_value(Value::Object(self.members))
            .map_err(|error| Fault::serialization(error.to_string()))
    }
}

impl Route {
    /// The input of the operation. `query` is as it stands in the URL. `headers` gives the value
    /// of a header; the name that it is asked for has capitals.
    ///
    /// Members that the model does not know are passed over, and so are those that are null. No
    /// body means `{}`. Of a repeated parameter that is no list the first counts.
    ///
    /// # Errors
    ///
    /// `SerializationException` for what is no JSON, or not of the model's types;
    /// `ValidationException` for what violates the model's constraints, all of them in one.
    pub fn input<'b, 'h>(
        &self,
        query: &str,
        headers: impl Fn(&str) -> Option<&'h str>,
        body: &'b [u8],
    ) -> Result<Input<'b>, Fault> {
        let structure = self.operation.input;
        let (mut members, payload) = from_body(structure, body)?;
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        for (name, Member(shape, location, key)) in &structure.members {
            let shape = MODEL.shape(shape);
            let mut values = pairs.iter().filter(|(given, _)| given == key).map(|pair| &*pair.1);
            let text = match location {
                Location::Body => continue,
                Location::Uri => self.parameter(key),
                Location::Header => headers(key),
                Location::QueryString => match &shape.kind {
                    Kind::List { of, .. } => {
                        let of = MODEL.shape(of);
                        let all: Vec<Value> =
                            values.map(|text| from_text(of, text)).collect::<Result<_, _>>()?;
                        if !all.is_empty() {
                            members.insert(name.clone(), Value::Array(all));
                        }
                        continue;
                    }
                    _ => values.next(),
                },
            };
            if let Some(text) = text {
                members.insert(name.clone(), from_text(shape, text)?);
            }
        }
        constraints::check(structure, &members, payload)?;
        Ok(Input { members, payload })
    }
}

/// The members that the body has, or that it is.
fn from_body<'b>(
    structure: &Structure,
    body: &'b [u8],
) -> Result<(Map<String, Value>, &'b [u8]), Fault> {
    let none: &[u8] = &[];
    let payload = structure.payload.as_ref().and_then(|name| structure.members.get_key_value(name));
    match payload {
        Some((name, Member(shape, ..))) => {
            let shape = MODEL.shape(shape);
            if matches!(shape.kind, Kind::Blob { .. }) {
                return Ok((Map::new(), body));
            }
            let value = json(body)?;
            let mut members = Map::new();
            if !value.is_null() {
                members.insert(name.clone(), typed(shape, value)?);
            }
            Ok((members, none))
        }
        None if structure.members.values().any(|member| member.1 == Location::Body) => {
            match json(body)? {
                Value::Null => Ok((Map::new(), none)),
                value => Ok((typed_structure(structure, value)?, none)),
            }
        }
        // Nothing in it could count.
        None => Ok((Map::new(), none)),
    }
}

/// Null when there is nothing.
fn json(body: &[u8]) -> Result<Value, Fault> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    bounded::value(body).map_err(|error| {
        Fault::serialization(format!("Could not parse request body into json: {error}"))
    })
}
