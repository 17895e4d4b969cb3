//! `wool base`: works on the state directory itself; no worker is needed.

use anyhow::Result;
use layers::python::PythonRequest;
use layers::{Store, base};

use super::terminal::{Display, columns, say};
use super::{state_root, write_json, write_out};
use crate::cli::{Base, Global};
use crate::state_directory::State;
use function::quantity::Bytes;

pub(super) fn base(global: &Global, command: &Base) -> Result<()> {
    let state = State::open(&state_root(global)?)?;
    let store = Store::open(state.root())?;
    match command {
        Base::Build { python } => build(global, &store, python.as_deref()),
        Base::Ls => list(global, &store),
    }
}

fn build(global: &Global, store: &Store, python: Option<&str>) -> Result<()> {
    let request = python.map_or_else(|| Ok(PythonRequest::any()), PythonRequest::parse)?;
    let display = Display::new();
    let found = layers::python::find(&request)?;
    let base = base::build(store, &found, &display)?;
    display.finish();
    if global.json {
        return write_json(&base);
    }
    for (part, reason) in &base.missing {
        say(&format!("without {part}: {reason}"));
    }
    write_out(
        format!(
            "{} Python {}, {} MB, from {}\n",
            base.id,
            base.version,
            base.bytes / 1_000_000,
            base.source.display()
        )
        .as_bytes(),
    )
}

fn list(global: &Global, store: &Store) -> Result<()> {
    let bases = base::list(store)?;
    if global.json {
        return write_json(&bases);
    }
    if bases.is_empty() {
        say("no bases yet: one is made at the first deploy, or by `wool base build`");
        return Ok(());
    }
    let header = ["PYTHON", "SIZE", "ID", "MADE FROM"].map(str::to_owned).to_vec();
    let rows = bases.into_iter().map(|base| {
        let megabytes = Bytes(base.bytes.div_ceil(1 << 20) << 20).to_string();
        vec![
            base.version,
            megabytes,
            base.id.chars().take(12).collect(),
            base.source.display().to_string(),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    write_out(columns(&rows).as_bytes())
}
