//! `wool zygotes`.

use std::collections::BTreeSet;

use anyhow::Result;
use engine::ZygoteStatus;

use super::terminal::{columns, say};
use super::{client, write_json, write_out};
use crate::cli::Global;
use doors::native::ZygoteList;

/// Distributions that a row names.
const NAMED: usize = 4;

pub(super) async fn zygotes(global: &Global) -> Result<()> {
    let list: ZygoteList = client(global)?.get("/v1/zygotes").await?;
    if global.json {
        return write_json(&list);
    }
    if list.zygotes.is_empty() {
        say("no zygotes yet: they are made when a function is deployed or called");
    } else {
        let header = ["ZYGOTE", "MODULES", "IMPORTS", "MEMORY", "FORKS", "SPARED", "PACKAGES"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let there: BTreeSet<_> = list.zygotes.iter().map(|zygote| zygote.id).collect();
        for root in &list.zygotes {
            if root.parent.is_none_or(|parent| !there.contains(&parent)) {
                add(root, 0, &list.zygotes, &mut rows);
            }
        }
        write_out(columns(&rows).as_bytes())?;
    }
    for refused in &list.refused {
        let again = if refused.for_good { "" } else { "; will be tried again" };
        say(&format!("no zygote for {}: {}{again}", named(&refused.distributions), refused.why));
    }
    Ok(())
}

/// A zygote's row, and those of what was derived from it.
fn add(zygote: &ZygoteStatus, depth: usize, all: &[ZygoteStatus], rows: &mut Vec<Vec<String>>) {
    rows.push(vec![
        format!("{}{}", "  ".repeat(depth), zygote.id),
        zygote.modules.to_string(),
        format!("{:.0}ms", zygote.import_ms),
        format!("{}MiB", zygote.memory_bytes.div_ceil(1 << 20)),
        zygote.forks.to_string(),
        format!("{:.0}ms", zygote.saved_ms),
        named(&zygote.distributions),
    ]);
    for child in all.iter().filter(|child| child.parent == Some(zygote.id)) {
        add(child, depth + 1, all, rows);
    }
}

fn named(distributions: &[String]) -> String {
    match distributions.len() {
        0 => "-".to_owned(),
        count if count > NAMED + 1 => {
            format!("{} and {} more", distributions[..NAMED].join(", "), count - NAMED)
        }
        _ => distributions.join(", "),
    }
}
