//! `wool versions`, `publish`, `unpublish`, `alias` and `rollback`.

use anyhow::Result;
use bytes::Bytes;
use hyper::{Method, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::terminal::{columns, say};
use super::{call, client, write_json, write_out};
use crate::cli::{Alias, Global, Publish, RollBack, Unpublish, Versions};
use crate::client::Client;
use doors::native::{
    AliasRequest, AliasSummary, Canary, FunctionDetail, PublishRequest, ReleaseSummary,
    RollBackRequest,
};
use function::LATEST;

pub(super) async fn versions(global: &Global, versions: &Versions) -> Result<()> {
    let function: FunctionDetail = client(global)?.get(&path(&versions.name, "")).await?;
    if global.json {
        let FunctionDetail { versions, published, aliases, .. } = function;
        return write_json(&serde_json::json!({
            "versions": versions, "published": published, "aliases": aliases,
        }));
    }
    write_out(table(&function).as_bytes())
}

/// A row for each version that is kept, newest first.
fn table(function: &FunctionDetail) -> String {
    let header = ["VERSION", "DEPLOYED", "NUMBER", "ALIASES", "DESCRIPTION"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for version in &function.versions {
        let published = function.published.iter().rev();
        let published: Vec<_> = published.filter(|one| one.version == version.version).collect();
        let has = |number: u32| published.iter().any(|one| one.number == number);
        let is_current = version.version == function.summary.version;
        let mut names = Vec::new();
        for alias in &function.aliases {
            let canary = alias.canary.filter(|canary| has(canary.number));
            if let Some(Canary { share, .. }) = canary {
                names.push(format!("{} ({}%)", alias.name, (share * 1e4).round() / 100.0));
            } else if alias.number.map_or(is_current, has) {
                names.push(alias.name.clone());
            }
        }
        if is_current {
            names.insert(0, LATEST.to_owned());
        }
        let numbers: Vec<String> = published.iter().map(|one| one.number.to_string()).collect();
        let description = published.first().map(|one| one.description.clone());
        rows.push(vec![
            version.version.chars().take(12).collect(),
            version.created.clone(),
            numbers.join(", "),
            names.join(", "),
            description.unwrap_or_default(),
        ]);
    }
    columns(&rows)
}

pub(super) async fn publish(global: &Global, publish: &Publish) -> Result<()> {
    let request = PublishRequest { description: publish.description.clone() };
    let path = path(&publish.name, "/versions");
    let made: ReleaseSummary = ask(&client(global)?, Method::POST, &path, &request).await?;
    if global.json {
        return write_json(&made);
    }
    say(&format!("call it with: wool invoke {}:{}", publish.name, made.number));
    write_out(format!("{}\n", made.number).as_bytes())
}

pub(super) async fn unpublish(global: &Global, unpublish: &Unpublish) -> Result<()> {
    let client = client(global)?;
    for number in &unpublish.numbers {
        let path = path(&unpublish.name, &format!("/versions/{number}"));
        client.ask(Method::DELETE, &path, &[], Bytes::new()).await?;
        write_out(format!("{number}\n").as_bytes())?;
    }
    Ok(())
}

pub(super) async fn alias(global: &Global, alias: &Alias) -> Result<()> {
    let client = client(global)?;
    let of = |name: &str, alias: &str| path(name, &format!("/aliases/{}", call::segment(alias)));
    match alias {
        Alias::Set { name, alias, number, canary, description } => {
            let request = AliasRequest {
                number: *number,
                canary: canary.map(|(number, share)| Canary { number, share }),
                description: description.clone(),
            };
            let set: AliasSummary = ask(&client, Method::PUT, &of(name, alias), &request).await?;
            if global.json {
                return write_json(&set);
            }
            say(&format!("call it with: wool invoke {name}:{alias}"));
        }
        Alias::Rm { name, alias } => {
            client.ask(Method::DELETE, &of(name, alias), &[], Bytes::new()).await?;
            write_out(format!("{alias}\n").as_bytes())?;
        }
    }
    Ok(())
}

pub(super) async fn roll_back(global: &Global, roll_back: &RollBack) -> Result<()> {
    let request = RollBackRequest { version: roll_back.version.clone() };
    let path = path(&roll_back.name, "/rollback");
    let function: FunctionDetail = ask(&client(global)?, Method::POST, &path, &request).await?;
    if global.json {
        return write_json(&function);
    }
    say(&format!("{} is at version {} again", roll_back.name, function.summary.version));
    Ok(())
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/functions/{}{rest}", call::segment(name))
}

/// Sends JSON and reads JSON.
async fn ask<T: DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    request: &impl Serialize,
) -> Result<T> {
    let json = [(header::CONTENT_TYPE, "application/json")];
    let response = client.ask(method, path, &json, serde_json::to_vec(request)?.into()).await?;
    let body = client.body(response).await?;
    serde_json::from_slice(&body).map_err(|error| client.unexpected(error.to_string()).into())
}
