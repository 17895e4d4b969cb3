//! `wool ls`.

use anyhow::Result;

use super::terminal::{columns, say};
use super::{client, write_json, write_out};
use crate::cli::{Global, Ls};
use doors::native::isolation::Reset;
use doors::native::{FunctionList, FunctionSummary};
use function::quantity::Bytes;

pub(super) async fn list(global: &Global, ls: &Ls) -> Result<()> {
    let list: FunctionList =
        client(global)?.get(&format!("/v1/functions?hidden={}", ls.all)).await?;
    if global.json {
        return write_json(&list.functions);
    }
    if list.functions.is_empty() {
        say("no functions yet: deploy one with `wool deploy FILE.py`");
        return Ok(());
    }
    let header = ["NAME", "HANDLER", "ISOLATION", "MEMORY", "TIMEOUT", "UPDATED", "VERSION"];
    let rows = list.functions.into_iter().map(|function| {
        let isolation = isolation(&function);
        vec![
            function.name,
            function.handler,
            isolation,
            Bytes(function.memory).to_string(),
            format!("{}s", function.timeout),
            function.updated,
            function.version.chars().take(12).collect(),
        ]
    });
    let rows: Vec<Vec<String>> =
        std::iter::once(header.map(str::to_owned).to_vec()).chain(rows).collect();
    write_out(columns(&rows).as_bytes())
}

/// What it runs in here, and whether that is put back.
fn isolation(function: &FunctionSummary) -> String {
    let isolation = function.isolation.map_or("?", |isolation| isolation.as_str());
    let reset = if function.reset == Some(Reset::Always) { ", reset" } else { "" };
    format!("{isolation}{reset}")
}
