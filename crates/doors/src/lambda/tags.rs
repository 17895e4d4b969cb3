//! Tags of functions.

use std::collections::BTreeMap;

use lambda_api::Fault;
use serde::Deserialize;
use serde_json::json;

use super::call::{Answer, Call, Named};

/// What tags are kept as, beside a function.
const KIND: &str = "tags";

/// Most tags of one function: the service's own limit.
const MOST: usize = 50;

/// What each of the operations names.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    resource: String,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    tag_keys: Vec<String>,
}

impl Asked {
    /// The function: tags belong to a whole one.
    fn named(&self, call: &Call) -> Result<Named, Fault> {
        let named = call.named(&self.resource, None)?;
        match named.qualifier {
            None => Ok(named),
            Some(_) => Err(Fault::invalid_parameter_value(
                "Tags on function aliases and versions are not supported. Please specify a function ARN.",
            )),
        }
    }
}

/// `ListTags`, of one function.
pub(super) async fn list(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    Answer::json(&json!({ "Tags": of(&call, &named)? }))
}

/// `TagResource`: adds tags, and replaces those of the same name.
pub(super) async fn tag(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    set(&call, &named, asked.tags).await?;
    Ok(Answer::empty())
}

/// `UntagResource`.
pub(super) async fn untag(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    let keys = asked.tag_keys;
    let change = move |tags: &mut BTreeMap<String, String>| {
        tags.retain(|key, _| !keys.contains(key));
        Ok(())
    };
    call.change(&named, KIND, "", change).await?;
    Ok(Answer::empty())
}

/// Refuses more tags than a function may have.
///
/// # Errors
/// When there are too many.
pub(super) fn check(tags: &BTreeMap<String, String>) -> Result<(), Fault> {
    if tags.len() <= MOST {
        return Ok(());
    }
    Err(Fault::invalid_parameter_value("Number of tags exceeds resource tag limit."))
}

/// The tags of a function.
///
/// # Errors
/// When it is not there.
pub(super) fn of(call: &Call, named: &Named) -> Result<BTreeMap<String, String>, Fault> {
    Ok(call.attached(named, KIND, "")?.unwrap_or_default())
}

/// Adds tags to a function.
///
/// # Errors
/// When it has too many.
pub(super) async fn set(
    call: &Call,
    named: &Named,
    added: BTreeMap<String, String>,
) -> Result<(), Fault> {
    let change = move |tags: &mut BTreeMap<String, String>| {
        tags.extend(added);
        check(tags)
    };
    call.change(named, KIND, "", change).await.map(drop)
}
