//! `wool audit`.

use anyhow::Result;

use super::terminal::{columns, say};
use super::{client, write_json, write_out};
use crate::cli::{Audit, Global};
use doors::native::ActionList;
use platform::audit::Who;

pub(super) async fn audit(global: &Global, audit: &Audit) -> Result<()> {
    let list: ActionList = client(global)?.get(&format!("/v1/audit?lines={}", audit.lines)).await?;
    if global.json {
        return write_json(&list.actions);
    }
    if list.actions.is_empty() {
        say("nothing was changed yet");
        return Ok(());
    }
    let header = ["TIME", "WHO", "FROM", "ACTION", "ON", "RESULT"].map(str::to_owned).to_vec();
    let rows = list.actions.into_iter().map(|action| {
        let who = match action.who {
            Who::Anyone => "anyone".to_owned(),
            Who::Token(name) => format!("token {name}"),
            Who::Uid(uid) => format!("uid {uid}"),
        };
        let version = action.version.map(|id| id.chars().take(12).collect());
        let on = [action.function, action.subject, version].into_iter().flatten();
        let on: Vec<String> = on.collect();
        vec![action.time, who, action.remote, action.action, on.join(" "), action.result]
    });
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    write_out(columns(&rows).as_bytes())
}
