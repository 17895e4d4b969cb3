//! The examples in `guest/vectors/wire.json`, which the guest's own tests read too.

use std::fmt::Debug;
use std::path::Path;

use sandbox::wire::{Decoder, Frame, MessageError, Reply, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Deserialize)]
struct Vector {
    name: String,
    direction: Direction,
    header: Value,
    body_hex: String,
    frame_hex: String,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    Request,
    Reply,
}

fn vectors() -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/vectors/wire.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2));
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Decodes the single frame in these bytes.
fn frame(bytes: &[u8]) -> Frame {
    let mut decoder = Decoder::new(1 << 20);
    decoder.push(bytes);
    let frame = decoder.next_frame().unwrap().unwrap();
    assert_eq!(decoder.pending(), 0);
    frame
}

/// Decodes the vector, compares it with its description, and encodes it again.
fn check<M: DeserializeOwned + PartialEq + Debug>(
    vector: &Vector,
    decode: impl Fn(Frame) -> Result<(M, Vec<u8>), MessageError>,
    encode: impl Fn(&M, &[u8], &mut Vec<u8>) -> Result<(), MessageError>,
) {
    let name = &vector.name;
    let given = bytes(&vector.frame_hex);
    let (message, body) = decode(frame(&given)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(message, serde_json::from_value::<M>(vector.header.clone()).unwrap(), "{name}");
    assert_eq!(body, bytes(&vector.body_hex), "{name}");

    let mut again = Vec::new();
    encode(&message, &body, &mut again).unwrap();
    assert_eq!(again[4..8], given[4..8], "{name}: the body's length");
    let ours = frame(&again);
    assert_eq!(ours.body, body, "{name}");
    assert_eq!(serde_json::from_slice::<Value>(&ours.header).unwrap(), vector.header, "{name}");
    // The encoders differ only in blanks and escapes: without either, the bytes are equal.
    if ours.header.len() == frame(&given).header.len() {
        assert_eq!(again, given, "{name}");
    }
}

#[test]
fn every_vector_is_read_and_written_as_it_says() {
    for vector in vectors() {
        match vector.direction {
            Direction::Request => check(&vector, Request::decode, Request::encode),
            Direction::Reply => check(&vector, Reply::decode, Reply::encode),
        }
    }
}

#[test]
fn the_vectors_hold_every_kind_of_message() {
    let mut kinds: Vec<_> =
        vectors().iter().map(|vector| vector.header["kind"].as_str().unwrap().to_owned()).collect();
    kinds.sort();
    kinds.dedup();
    assert_eq!(
        kinds,
        ["done", "failed", "imports", "invoke", "load", "loaded", "log", "part", "ready", "wake"]
    );
}

#[test]
fn a_vector_cut_short_is_not_yet_a_frame() {
    for vector in vectors() {
        let given = bytes(&vector.frame_hex);
        let mut decoder = Decoder::new(1 << 20);
        decoder.push(&given[..given.len() - 1]);
        assert_eq!(decoder.next_frame(), Ok(None), "{}", vector.name);
    }
}
