//! `wool packages`.

use anyhow::{Result, bail};
use hyper::Method;
use serde::de::DeserializeOwned;

use super::terminal::{columns, say};
use super::{client, write_json, write_out};
use crate::cli::{Global, Packages, PackagesAction};
use crate::client::Client;
use doors::native::{Checked, PackageList, PackageSummary, Pruned};
use function::quantity::Bytes;

pub(super) async fn packages(global: &Global, packages: &Packages) -> Result<()> {
    let client = client(global)?;
    match packages.action {
        None => list(global, &client).await,
        Some(PackagesAction::Prune) => prune(global, &client).await,
        Some(PackagesAction::Verify) => verify(global, &client).await,
    }
}

const HEADER: [&str; 10] = [
    "NAME",
    "VERSION",
    "PYTHON",
    "ORIGIN",
    "SIZE",
    "IMPORT",
    "MEMORY",
    "USED BY",
    "LAST USED",
    "FORKED",
];

fn row(package: PackageSummary) -> [String; 10] {
    let unknown = || "-".to_owned();
    let users = match package.functions.as_slice() {
        [] => unknown(),
        [first, second, _, more @ ..] if !more.is_empty() => {
            format!("{first}, {second} and {} more", more.len() + 1)
        }
        few => few.join(", "),
    };
    [
        package.name,
        package.version,
        package.python,
        match (package.bundled, package.built) {
            (true, _) => "bundle",
            (_, true) => "built here",
            _ => "index",
        }
        .to_owned(),
        size(package.bytes),
        package.import_ms.map_or_else(unknown, |took| format!("{took:.1}ms")),
        package.import_bytes.map_or_else(unknown, size),
        users,
        package.used,
        match (package.unforkable, package.import_ms) {
            (Some(why), _) => format!("no: {why}"),
            (None, Some(_)) => "yes".to_owned(),
            // No zygote has imported it yet.
            (None, None) => unknown(),
        },
    ]
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
    let header = HEADER.map(str::to_owned).to_vec();
    let rows = list.packages.into_iter().map(|package| row(package).to_vec());
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_of_a_package_is_shown_as_unknown() {
        let package = PackageSummary {
            name: "numpy".to_owned(),
            version: "2.1.0".to_owned(),
            wheel: "numpy-2.1.0".to_owned(),
            python: "3.12".to_owned(),
            built: false,
            bundled: false,
            modules: Vec::new(),
            files: 1,
            bytes: 1,
            functions: Vec::new(),
            used: "now".to_owned(),
            import_ms: None,
            import_bytes: None,
            unforkable: None,
        };
        let shown = |package| {
            let row = row(package);
            ["IMPORT", "MEMORY", "FORKED"]
                .map(|title| row[HEADER.iter().position(|other| *other == title).unwrap()].clone())
        };
        assert_eq!(shown(package.clone()), ["-", "-", "-"]);
        let measured =
            PackageSummary { import_ms: Some(62.34), import_bytes: Some(20 << 20), ..package };
        assert_eq!(shown(measured.clone()), ["62.3ms", "20MiB", "yes"]);
        let threads = PackageSummary { unforkable: Some("threads".to_owned()), ..measured };
        assert_eq!(shown(threads), ["62.3ms", "20MiB", "no: threads"]);
    }
}
