//! Requests to AWS Lambda's API: which operation, with what input, of which function or layer.
//!
//! The first line of the bytes is a method and a URL, the second the value of every header, and the
//! third names a function or a layer. The rest is the body.

use lambda_api::arn::{FunctionRef, LayerRef, Place};
use lambda_api::{Fault, Input, Route, is_api_path, route};

pub(crate) fn fuzz(bytes: &[u8]) {
    let mut parts = bytes.splitn(4, |byte| *byte == b'\n');
    let mut line = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (request, header, name) = (line(), line(), line());
    let body = parts.next().unwrap_or_default();
    let (method, url) = request.split_once(' ').unwrap_or(("GET", &request));
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    match route(method, path, query) {
        Ok(found) => {
            assert!(is_api_path(path), "{path:?} is the door's own");
            assert_eq!(found.operation.method, method);
            match found.input(query, |_| Some(&header), body) {
                Ok(input) => complete(&found, &input),
                Err(fault) => readable(&fault),
            }
        }
        Err(fault) => readable(&fault),
    }
    names(&name);
}

/// What the path says is there, as it stands there, and no member is null.
fn complete(route: &Route, input: &Input) {
    for (_, value) in &route.parameters {
        assert!(!value.is_empty());
    }
    assert!(input.members.len() >= route.parameters.len());
    assert!(input.members.values().all(|value| !value.is_null()));
    assert!(route.operation.payload.is_some() || input.payload.is_empty());
}

/// A name that is read can be written whole, and is then the same.
fn names(text: &str) {
    let [partition, region, account] = ["aws", "us-east-1", "123456789012"].map(str::to_owned);
    let place = Place { partition, region, account };
    match FunctionRef::read(text, None, &place) {
        Ok(found) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            assert!(found.name.len() <= 64 && found.name.chars().all(plain), "{found:?}");
            let arn = place.function_arn(&found.name, found.qualifier.as_deref());
            assert_eq!(FunctionRef::read(&arn, None, &place), Ok(found));
        }
        Err(fault) => readable(&fault),
    }
    match LayerRef::read(text, &place) {
        Ok(found) => {
            let arn = match found.version {
                Some(version) => place.layer_version_arn(&found.name, version),
                None => place.layer_arn(&found.name),
            };
            assert_eq!(LayerRef::read(&arn, &place), Ok(found));
        }
        Err(fault) => readable(&fault),
    }
}

/// Its body is JSON with the text in it.
fn readable(fault: &Fault) {
    assert!((400..500).contains(&fault.status()), "{fault}");
    let body: serde_json::Value = serde_json::from_slice(&fault.body()).expect("JSON");
    let text = body.get("message").or_else(|| body.get("Message"));
    assert_eq!(text.and_then(serde_json::Value::as_str), Some(fault.message()));
}
