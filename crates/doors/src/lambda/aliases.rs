//! The five operations on aliases: names of versions, with a weight for a second one.

use std::collections::BTreeMap;
use std::sync::Arc;

use function::{AliasName, LATEST};
use lambda_api::Fault;
use platform::access::to;
use platform::functions::{Alias, ReleaseError};
use platform::logs::stamp;
use serde::{Deserialize, Serialize};
use store::AliasRow;

use super::call::{Answer, Call, Named};
use super::configuration::{not_released, revision_of};
use super::paging::page;

/// `RoutingConfig`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Routing {
    #[serde(default)]
    additional_version_weights: BTreeMap<String, f64>,
}

/// `AliasConfiguration`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct AliasConfiguration {
    alias_arn: String,
    name: String,
    function_version: String,
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    routing_config: Option<Routing>,
    revision_id: String,
}

impl AliasConfiguration {
    fn of(call: &Call, named: &Named, row: &AliasRow) -> Self {
        let weight = |(number, share): (u32, f64)| Routing {
            additional_version_weights: BTreeMap::from([(number.to_string(), share)]),
        };
        Self {
            alias_arn: call.arn(named.name.as_str(), Some(row.name.as_str())),
            name: row.name.to_string(),
            function_version: shown(row.number),
            description: row.description.clone(),
            routing_config: row.canary.map(weight),
            revision_id: revision(named, row),
        }
    }
}

/// Names the alias as it is now.
fn revision(named: &Named, row: &AliasRow) -> String {
    let AliasRow { name, number, canary, updated, description } = row;
    let updated = stamp(*updated);
    revision_of(&format!("{} {name} {number:?} {canary:?} {updated} {description}", named.name))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedChange {
    function_name: String,
    name: String,
    function_version: Option<String>,
    description: Option<String>,
    routing_config: Option<Routing>,
    revision_id: Option<String>,
}

/// `CreateAlias`: one that is there is not changed.
pub(super) async fn create(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedChange = call.read()?;
    let number = version(asked.function_version.as_deref().unwrap_or_default())?;
    let canary = canary(number, asked.routing_config.as_ref())?;
    let description = asked.description.clone().unwrap_or_default();
    let change = move |before: Option<&AliasRow>, unlike: ReleaseError| match before {
        Some(_) => Err(unlike),
        None => Ok(Alias { number, canary, description }),
    };
    let (name, alias) = (asked.function_name.clone(), asked.name.clone());
    let exists = ReleaseError::AliasExists { name, alias: alias_name(&alias)? };
    put(call, &asked, move |before| change(before, exists)).await
}

/// `UpdateAlias`: what is not said stays.
pub(super) async fn update(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedChange = call.read()?;
    let number = asked.function_version.as_deref().map(version).transpose()?;
    let (routing, description) = (asked.routing_config.clone(), asked.description.clone());
    let revision_id = asked.revision_id.clone();
    let alias = alias_name(&asked.name)?;
    let named = call.named_whole(&asked.function_name)?;
    let change = move |before: Option<&AliasRow>| {
        let Some(before) = before else {
            let name = named.name.to_string();
            return Err(ReleaseError::UnknownAlias { name, alias });
        };
        if revision_id.is_some_and(|asked| asked != revision(&named, before)) {
            return Err(ReleaseError::Changed(alias.to_string()));
        }
        let number = number.unwrap_or(before.number);
        let canary = match &routing {
            None => before.canary,
            Some(routing) => weight(routing).ok().flatten(),
        };
        let description = description.unwrap_or_else(|| before.description.clone());
        Ok(Alias { number, canary, description })
    };
    if let Some(routing) = &asked.routing_config {
        canary(number.flatten(), Some(routing))?;
    }
    put(call, &asked, change).await
}

async fn put(
    call: Call,
    asked: &AskedChange,
    change: impl FnOnce(Option<&AliasRow>) -> Result<Alias, ReleaseError> + Send + 'static,
) -> Result<Answer, Fault> {
    let named = call.named_whole(&asked.function_name)?;
    let permit = call.permit::<to::SetAlias>(&named.name)?;
    let (alias, app) = (alias_name(&asked.name)?, Arc::clone(&call.app));
    call.about(alias.as_str());
    let arn = call.arn(named.name.as_str(), Some(alias.as_str()));
    let unknown = call.not_found(&named);
    let function = call.arn(named.name.as_str(), None);
    let row = call.carry_out(async move {
        let put = app.releases.change_alias(&permit, alias, change).await;
        put.map_err(|error| match error {
            ReleaseError::AliasExists { .. } => {
                Fault::resource_conflict(format!("Alias already exists: {arn}"))
            }
            ReleaseError::UnknownAlias { .. } => {
                Fault::resource_not_found(format!("Alias not found: {arn}"))
            }
            ReleaseError::Unpublished { number, .. } => {
                Fault::resource_not_found(format!("Function not found: {function}:{number}"))
            }
            ReleaseError::Share(None) => latest_alone(),
            ReleaseError::Share(Some(_)) => Fault::invalid_parameter_value(
                "Invalid function version weight: an alias shares its calls between two versions, and each share is above 0 and at most 1",
            ),
            error => not_released(error, unknown),
        })
    });
    Answer::json(&AliasConfiguration::of(&call, &named, &row.await?))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    function_name: String,
    name: String,
}

/// `GetAlias`: where it points.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = call.named_whole(&asked.function_name)?;
    let permit = call.permit::<to::ShowFunction>(&named.name)?;
    let aliases = call.app.functions.releases(&permit).1;
    let row = aliases.iter().find(|row| row.name.as_str() == asked.name);
    let arn = call.arn(named.name.as_str(), Some(&asked.name));
    let row =
        row.ok_or_else(|| Fault::resource_not_found(format!("Cannot find alias arn: {arn}")))?;
    Answer::json(&AliasConfiguration::of(&call, &named, row))
}

/// `DeleteAlias`: one that is not there counts as removed.
pub(super) async fn delete(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = call.named_whole(&asked.function_name)?;
    let permit = call.permit::<to::RemoveAlias>(&named.name)?;
    let (alias, app) = (alias_name(&asked.name)?, Arc::clone(&call.app));
    call.about(alias.as_str());
    let missing = call.not_found(&named);
    let work = async move {
        let removed = app.releases.remove_alias(&permit, alias).await;
        removed.map_err(|error| not_released(error, missing))
    };
    call.carry_out(work).await?;
    Ok(Answer::empty())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedList {
    function_name: String,
    function_version: Option<String>,
    marker: Option<String>,
    max_items: Option<usize>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct AliasList {
    aliases: Vec<AliasConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_marker: Option<String>,
}

/// `ListAliases`, by name; those of one version where that is asked for.
pub(super) async fn list(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedList = call.read()?;
    let named = call.named_whole(&asked.function_name)?;
    let permit = call.permit::<to::ShowFunction>(&named.name)?;
    call.app.functions.show(&permit).ok_or_else(|| call.not_found(&named))?;
    let mut aliases = call.app.functions.releases(&permit).1;
    if let Some(version) = &asked.function_version {
        aliases.retain(|row| shown(row.number) == *version);
    }
    let key = |row: &AliasRow| row.name.to_string();
    let (some, next_marker) = page(aliases, key, asked.marker.as_deref(), asked.max_items)?;
    let aliases = some.iter().map(|row| AliasConfiguration::of(&call, &named, row)).collect();
    Answer::json(&AliasList { aliases, next_marker })
}

fn alias_name(text: &str) -> Result<AliasName, Fault> {
    text.parse().map_err(|refused: function::QualifierError| {
        Fault::invalid_parameter_value(refused.to_string())
    })
}

/// The version that an alias points to, as the service writes it.
fn shown(number: Option<u32>) -> String {
    number.map_or_else(|| LATEST.to_owned(), |number| number.to_string())
}

/// The number of the version that an alias is to point to; none: the current one.
fn version(text: &str) -> Result<Option<u32>, Fault> {
    if text == LATEST {
        return Ok(None);
    }
    let number = text.parse().map(Some);
    number.map_err(|_| Fault::invalid_parameter_value(format!("{text:?} is no version")))
}

/// The second version of an alias, beside this one, and its share.
fn canary(number: Option<u32>, routing: Option<&Routing>) -> Result<Option<(u32, f64)>, Fault> {
    let Some(routing) = routing else { return Ok(None) };
    let canary = weight(routing)?;
    let Some((other, _)) = canary else { return Ok(None) };
    if number == Some(other) {
        let number = other;
        return Err(Fault::invalid_parameter_value(format!(
            "Invalid function version {number}. Function version {number} is already included in routing configuration."
        )));
    }
    Ok(canary)
}

fn latest_alone() -> Fault {
    Fault::invalid_parameter_value(
        "$LATEST is not supported for an alias pointing to more than 1 version",
    )
}

/// The one weight of a routing; one of 0 is none.
fn weight(routing: &Routing) -> Result<Option<(u32, f64)>, Fault> {
    let mut weights = routing.additional_version_weights.iter();
    let (first, second) = (weights.next(), weights.next());
    if second.is_some() {
        return Err(Fault::invalid_parameter_value(format!(
            "Number of items in AdditionalVersionWeights cannot be greater than 1. There are {} items in AdditionalVersionWeights.",
            routing.additional_version_weights.len()
        )));
    }
    let Some((version_text, share)) = first else { return Ok(None) };
    let number = version(version_text)?.ok_or_else(latest_alone)?;
    Ok((*share > 0.0).then_some((number, *share)))
}
