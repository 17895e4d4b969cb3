//! Published versions.

use std::sync::Arc;

use function::Qualifier;
use lambda_api::Fault;
use platform::access::to;
use platform::functions::Function;
use serde::{Deserialize, Serialize};

use super::call::{Answer, Call};
use super::configuration::{self, FunctionConfiguration, Shown};
use super::paging::{AskedPage, of_number, page};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedPublish {
    function_name: String,
    #[serde(rename = "CodeSha256")]
    code_sha256: Option<String>,
    description: Option<String>,
    revision_id: Option<String>,
}

/// `PublishVersion`.
pub(super) async fn publish(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedPublish = call.read()?;
    let named = call.named_whole(&asked.function_name)?;
    let permit = call.permit::<to::Publish>(&named.name)?;
    let show = call.permit::<to::ShowFunction>(&named.name)?;
    let current = call.app.functions.show(&show).ok_or_else(|| call.not_found(&named))?;
    configuration::check_revision(&current, asked.revision_id.as_deref())?;
    configuration::check_code(&current, asked.code_sha256.as_deref())?;
    let (app, missing) = (Arc::clone(&call.app), call.not_found(&named));
    let seen = current.current().id.clone();
    let description = asked.description.unwrap_or_default();
    let published = call.carry_out(async move {
        let published = app.releases.publish(&permit, description, Some(seen)).await;
        published.map_err(|error| configuration::not_released(error, missing))
    });
    let release = published.await?;
    call.about(&release.number.to_string());
    Answer::json(&configuration::of(&call, &release.function, Shown::Published))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct VersionList {
    versions: Vec<FunctionConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_marker: Option<String>,
}

/// `ListVersionsByFunction`: the current version first, then the published ones.
pub(super) async fn list(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedPage = call.read()?;
    let named = call.named_whole(&asked.function_name)?;
    let permit = call.permit::<to::ShowFunction>(&named.name)?;
    let current = call.app.functions.show_version(&permit, &Qualifier::Latest);
    let current = current.ok_or_else(|| call.not_found(&named))?;
    let releases = call.app.functions.releases(&permit).0.into_iter();
    let numbered = releases.map(|release| (release.number, release.function));
    let all: Vec<(u32, Arc<Function>)> = std::iter::once((0, current)).chain(numbered).collect();
    let key = |(number, _): &(u32, Arc<Function>)| of_number(*number);
    let (some, next_marker) = page(all, key, asked.marker.as_deref(), asked.max_items)?;
    let versions = some.iter().map(|(_, one)| configuration::of(&call, one, Shown::InVersions));
    Answer::json(&VersionList { versions: versions.collect(), next_marker })
}
