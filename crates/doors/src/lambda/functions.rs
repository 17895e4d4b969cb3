//! Functions: looking and removing.

use std::sync::Arc;

use axum::http::StatusCode;
use function::Qualifier;
use lambda_api::Fault;
use platform::access::{Action, to};
use platform::functions::Function;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::call::{Answer, Call, Named};
use super::concurrency;
use super::configuration::{self, FunctionConfiguration, Shown};
use super::paging::{of_number, page};
use super::tags;
use crate::error::ApiError;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    function_name: String,
    qualifier: Option<String>,
}

/// A function as the request names it, and what it is found to be.
fn found(call: &mut Call) -> Result<(Named, Arc<Function>), Fault> {
    let asked: Asked = call.read()?;
    let named = call.named(&asked.function_name, asked.qualifier.as_deref())?;
    let permit = call.permit::<to::ShowFunction>(&named.name)?;
    let function = call.app.functions.show_version(&permit, &named.version());
    let function = function.ok_or_else(|| call.not_found(&named))?;
    Ok((named, function))
}

/// `GetFunction`: its configuration, its tags and its concurrency.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let (named, function) = found(&mut call)?;
    let configuration = configuration::of(&call, &function, Shown::Asked(named.qualifier.as_ref()));
    let mut shown = json!({
        "Configuration": configuration,
        "Code": { "RepositoryType": "Lambswool", "Location": call.app.url },
    });
    let tags = tags::of(&call, &named)?;
    if !tags.is_empty() {
        shown["Tags"] = json!(tags);
    }
    if let Some(concurrency) = concurrency::of(&call, &named)? {
        shown["Concurrency"] = json!(concurrency);
    }
    Answer::json(&shown)
}

/// `GetFunctionConfiguration`.
pub(super) async fn get_configuration(mut call: Call) -> Result<Answer, Fault> {
    let (named, function) = found(&mut call)?;
    Answer::json(&configuration::of(&call, &function, Shown::Asked(named.qualifier.as_ref())))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedList {
    function_version: Option<String>,
    marker: Option<String>,
    max_items: Option<usize>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct FunctionList {
    functions: Vec<FunctionConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_marker: Option<String>,
}

/// `ListFunctions`.
pub(super) async fn list(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedList = call.read()?;
    let permit = call.permit_all::<to::ListFunctions>()?;
    let every_version = asked.function_version.is_some();
    let functions = call.app.functions.list_versions(&permit).into_iter();
    let all = functions.flat_map(|(current, releases)| {
        let releases = releases.into_iter().filter(|_| every_version);
        let numbered = releases.map(|release| (release.number, release.function));
        std::iter::once((0, current)).chain(numbered)
    });
    let key = |(number, function): &(u32, Arc<Function>)| {
        format!("{}\0{}", function.name(), of_number(*number))
    };
    let (some, next_marker) = page(all.collect(), key, asked.marker.as_deref(), asked.max_items)?;
    let shown = if every_version { Shown::InVersions } else { Shown::InFunctions };
    let functions = some.iter().map(|(_, function)| configuration::of(&call, function, shown));
    Answer::json(&FunctionList { functions: functions.collect(), next_marker })
}

/// `DeleteFunction`: the function with all that belongs to it, or one published version.
pub(super) async fn delete(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = call.named(&asked.function_name, asked.qualifier.as_deref())?;
    let app = Arc::clone(&call.app);
    let missing = call.not_found(&named);
    let removed = match named.qualifier {
        None => {
            let permit = call.permit::<to::Remove>(&named.name)?;
            call.carry_out(async move {
                app.deployer.remove(&permit).await.map_err(|error| ApiError::from(error).into())
            })
            .await?
        }
        Some(Qualifier::Latest) => {
            return Err(Fault::invalid_parameter_value(
                "$LATEST version cannot be deleted without deleting the function.",
            ));
        }
        Some(Qualifier::Alias(_)) => {
            return Err(Fault::invalid_parameter_value(
                "Deletion of aliases is not currently supported.",
            ));
        }
        Some(Qualifier::Number(number)) => {
            let permit = call.permit::<to::Unpublish>(&named.name)?;
            call.is_rather(Action::Unpublish);
            call.about(&number.to_string());
            let unknown = call.not_found(&named);
            let work = async move {
                let removed = app.releases.unpublish(&permit, number).await;
                removed.map_err(|error| configuration::not_released(error, unknown))
            };
            call.carry_out(work).await?;
            // A version that is not there counts as removed.
            true
        }
    };
    if removed { Ok(Answer::empty().status(StatusCode::NO_CONTENT)) } else { Err(missing) }
}
