//! `wool packages`.

use anyhow::{Result, bail};
use hyper::Method;
use serde::de::DeserializeOwned;

use super::terminal::{columns, say};
use super::{client, write_json, write_out};
use crate::api::{Checked, PackageList, Pruned};
use crate::cli::{Global, Packages, PackagesAction};
use crate::client::Client;
use crate::quantity::Bytes;

pub(super) async fn packages(global: &Global, packages: &Packages) -> Result<()> {
    let client = client(global)?;
    match packages.action {
        None => list(global, &client).await,
        Some(PackagesAction::Prune) => prune(global, &client).await,
        Some(PackagesAction::Verify) => verify(global, &client).await,
    }
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let list: PackageList = client.get("/v1/packages").await?;
    if global.json {
        return write_json(&list);
    }
    if list.packages.is_empty() {
        say("no packages yet: they are installed when a function that needs them is deployed");
        return Ok(());
    }
    let header = ["NAME", "VERSION", "PYTHON", "ORIGIN", "SIZE", "USED BY", "LAST USED", "FORKED"];
    let header = header.map(str::to_owned);
    let rows = list.packages.into_iter().map(|package| {
        let users = match package.functions.as_slice() {
            [] => "-".to_owned(),
            [first, second, _, more @ ..] if !more.is_empty() => {
                format!("{first}, {second} and {} more", more.len() + 1)
            }
            few => few.join(", "),
        };
        vec![
            package.name,
            package.version,
            package.python,
            if package.built { "built here" } else { "index" }.to_owned(),
            size(package.bytes),
            users,
            package.used,
            package.unforkable.map_or_else(|| "yes".to_owned(), |why| format!("no: {why}")),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(header.to_vec()).chain(rows).collect();
    write_out(columns(&rows).as_bytes())?;
    say(&format!("{} of packages; {} is the budget", size(list.bytes), Bytes(list.budget)));
    Ok(())
}

async fn prune(global: &Global, client: &Client) -> Result<()> {
    let pruned: Pruned = post(client, "/v1/packages/prune").await?;
    if global.json {
        return write_json(&pruned);
    }
    for name in &pruned.removed {
        write_out(format!("{name}\n").as_bytes())?;
    }
    say(&format!("freed {}, {} left", size(pruned.freed), size(pruned.left)));
    Ok(())
}

async fn verify(global: &Global, client: &Client) -> Result<()> {
    let checked: Checked = post(client, "/v1/packages/verify").await?;
    if global.json {
        write_json(&checked)?;
    } else {
        for broken in &checked.broken {
            let outcome = match &broken.reason {
                None => "repaired".to_owned(),
                Some(reason) => format!("not repaired: {reason}"),
            };
            write_out(format!("{}: {}; {outcome}\n", broken.what, broken.fault).as_bytes())?;
        }
        if checked.broken.is_empty() {
            say("every package is as it was installed");
        }
    }
    if checked.broken.iter().all(|broken| broken.repaired) {
        return Ok(());
    }
    bail!(
        "some packages are broken and could not be fetched again; functions that use them may fail"
    )
}

async fn post<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T> {
    let response = client.ask(Method::POST, path, &[], bytes::Bytes::new()).await?;
    let body = client.body(response).await?;
    Ok(serde_json::from_slice(&body).map_err(|error| client.unexpected(error.to_string()))?)
}

/// In whole mebibytes, at least one.
fn size(bytes: u64) -> String {
    format!("{}MiB", bytes.div_ceil(1 << 20))
}
