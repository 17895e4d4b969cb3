//! Policies of layers: which callers the owner of a version names.
//!
//! They are kept and shown, and give no rights here, as those of functions.

use lambda_api::Fault;
use platform::access::to;
use platform::functions::PolicyError;
use serde::Deserialize;
use serde_json::json;

use super::call::{Answer, Call};
use super::layers::{Named, named, number, permit};
use super::policy::{Policy, Statement};
use crate::error::ApiError;

/// Where the current revision is found.
const GET: &str = "GetLayerPolicy";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedAdd {
    layer_name: String,
    version_number: i64,
    statement_id: String,
    action: String,
    principal: String,
    organization_id: Option<String>,
    revision_id: Option<String>,
}

/// `AddLayerVersionPermission`.
pub(super) async fn add(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedAdd = call.read()?;
    let (layer, number) = (named(&call, &asked.layer_name)?, number(asked.version_number)?);
    let organization = asked.organization_id.map(|id| ("aws:PrincipalOrgID".to_owned(), id));
    if organization.is_some() && asked.principal != "*" {
        return Err(Fault::invalid_parameter_value(
            "OrganizationId is for the Principal *: name one of the two",
        ));
    }
    let statement = Statement::allow(
        asked.statement_id,
        &asked.principal,
        asked.action,
        call.place.layer_version_arn(layer.name.as_str(), number.into()),
        organization.map(|one| ("StringEquals".to_owned(), [one].into())).into_iter().collect(),
    )?;
    let added = json!(statement).to_string();
    // A request has an id of its own, and so has each state of a policy.
    let (seen, revision) = (asked.revision_id, call.id.to_string());
    let shown = revision.clone();
    change(&call, &layer, number, move |policy| {
        policy.check_revision(seen.as_deref(), GET)?;
        policy.add(statement, revision)
    })
    .await?;
    Answer::json(&json!({ "Statement": added, "RevisionId": shown }))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedRemove {
    layer_name: String,
    version_number: i64,
    statement_id: String,
    revision_id: Option<String>,
}

/// `RemoveLayerVersionPermission`.
pub(super) async fn remove(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedRemove = call.read()?;
    let (layer, number) = (named(&call, &asked.layer_name)?, number(asked.version_number)?);
    let revision = call.id.to_string();
    change(&call, &layer, number, move |policy| {
        policy.check_revision(asked.revision_id.as_deref(), GET)?;
        policy.remove(&asked.statement_id, revision)
    })
    .await?;
    Ok(Answer::empty())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    layer_name: String,
    version_number: i64,
}

/// `GetLayerVersionPolicy`: all statements, as one text.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let (layer, number) = (named(&call, &asked.layer_name)?, number(asked.version_number)?);
    let permit = permit::<to::ShowLayer>(&call, &layer.name)?;
    let row = call.app.layers.show(&permit, number);
    let row = row.ok_or_else(|| missing(&call, &layer, number))?;
    let policy = row.policy.as_deref().map(serde_json::from_str::<Policy>).transpose();
    let policy = policy.map_err(unreadable)?.ok_or_else(|| {
        Fault::resource_not_found("No policy is associated with the given resource.")
    })?;
    Answer::json(&json!({ "Policy": policy.document(), "RevisionId": policy.revision() }))
}

async fn change(
    call: &Call,
    layer: &Named,
    number: u32,
    change: impl FnOnce(&mut Policy) -> Result<(), Fault> + Send + 'static,
) -> Result<(), Fault> {
    let permit = permit::<to::ConfigureLayer>(call, &layer.name)?;
    call.about(&format!("layer {}:{number}", layer.name));
    let (layers, missing) = (call.app.layers.clone(), missing(call, layer, number));
    let over = move |before: Option<&str>| {
        let before = before.map(serde_json::from_str::<Policy>).transpose();
        let mut policy = before.map_err(unreadable)?.unwrap_or_default();
        change(&mut policy)?;
        let text = (policy != Policy::default()).then(|| serde_json::to_string(&policy));
        text.transpose().map_err(unreadable)
    };
    call.carry_out(async move {
        layers.change_policy(&permit, number, over).await.map_err(|error| match error {
            PolicyError::Unknown => missing,
            PolicyError::Refused(fault) => fault,
            PolicyError::Store(_) | PolicyError::BrokeOff => {
                ApiError::internal(error.to_string()).into()
            }
        })
    })
    .await
}

fn missing(call: &Call, layer: &Named, number: u32) -> Fault {
    let arn = call.place.layer_version_arn(layer.name.as_str(), number.into());
    Fault::resource_not_found(format!("Layer version {arn} does not exist."))
}

fn unreadable(error: serde_json::Error) -> Fault {
    ApiError::internal(format!("the policy of the layer cannot be read: {error}")).into()
}
