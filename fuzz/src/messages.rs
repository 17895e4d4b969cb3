//! Packets that are JSON: between worker and warden, worker and monitor, and what zygotes say. What is understood can be
//! said again, and is then understood alike.

use std::fmt::Debug;

use sandbox::{Imports, InstanceSpec, LoadedFile, ZygoteSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use vmm::message::{Event, Order};
use warden::protocol::{Answer, Command, Numbered};

pub(crate) fn fuzz(bytes: &[u8]) {
    again::<Numbered<Command>>(bytes);
    again::<Numbered<Answer>>(bytes);
    again::<Order>(bytes);
    again::<Event>(bytes);
    again::<Imports>(bytes);
    again::<Vec<LoadedFile>>(bytes);
    again::<ZygoteSpec>(bytes);
    again::<InstanceSpec>(bytes);
}

fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(bytes) else { return };
    let said = serde_json::to_vec(&message).expect("plain data can be written");
    let heard: T = serde_json::from_slice(&said).expect("what was written can be read");
    assert_eq!(message, heard);
}
