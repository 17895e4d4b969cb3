//! The program `wool`: its commands, its settings, and the worker that puts the parts together.
//!
//! ```text
//!   wool up      ──► worker ──► config, state_directory, privilege ──► wiring: providers ──► assembly: stores, platform ──► serve: doors
//!   wool deploy… ──► command ──► client ──HTTP──► the worker's door
//!   wool doctor  ──► doctor: what this machine has, and what the settings ask of it
//! ```
//!
//! This crate alone names concrete providers and stores; every other crate takes what it needs as arguments.

#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod command;
pub mod config;
pub mod doctor;
mod privilege;
pub mod state_directory;
pub mod worker;
