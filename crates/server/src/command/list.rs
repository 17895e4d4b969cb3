//! `wool ls`.

use anyhow::Result;

use super::terminal::{columns, say};
use super::{client, write_json, write_out};
use crate::api::FunctionList;
use crate::cli::{Global, Ls};
use crate::quantity::Bytes;

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
    let header = ["NAME", "HANDLER", "MEMORY", "TIMEOUT", "UPDATED", "VERSION"].map(str::to_owned);
    let rows = list.functions.into_iter().map(|function| {
        vec![
            function.name,
            function.handler,
            Bytes(function.memory).to_string(),
            format!("{}s", function.timeout),
            function.updated,
            function.version.chars().take(12).collect(),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(header.to_vec()).chain(rows).collect();
    write_out(columns(&rows).as_bytes())
}
