//! How often events of a function are tried, and for how long. Destinations are kept and shown; nothing is sent to them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use function::Qualifier;
use lambda_api::Fault;
use lambda_api::arn::FunctionRef;
use platform::access::{Permit, to};
use platform::events::Tries;
use serde::{Deserialize, Serialize};

use super::call::{Answer, Call, Named};
use super::paging::{AskedPage, page};
use crate::App;

/// What they are kept as, beside a function: under the number of a version, the name of an alias, or `$LATEST`.
const KIND: &str = "event-invoke";

/// `FunctionEventInvokeConfig`, without the ARN.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Kept {
    /// Seconds since 1970.
    last_modified: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    maximum_retry_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    maximum_event_age_in_seconds: Option<u32>,
    #[serde(default)]
    destination_config: Destinations,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Destinations {
    #[serde(default)]
    on_success: Destination,
    #[serde(default)]
    on_failure: Destination,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Destination {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Shown {
    function_arn: String,
    #[serde(flatten)]
    kept: Kept,
}

impl Shown {
    fn of(call: &Call, named: &Named, key: &str, kept: Kept) -> Self {
        Self { function_arn: call.arn(named.name.as_str(), Some(key)), kept }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    function_name: String,
    qualifier: Option<String>,
    maximum_retry_attempts: Option<u32>,
    maximum_event_age_in_seconds: Option<u32>,
    destination_config: Option<Destinations>,
}

impl Asked {
    fn named(&self, call: &Call) -> Result<Named, Fault> {
        call.named(&self.function_name, self.qualifier.as_deref())
    }

    /// Refuses to set nothing, and a function that would be its own destination.
    fn check(&self, call: &Call, named: &Named) -> Result<(), Fault> {
        let Some(destinations) = &self.destination_config else {
            if self.maximum_retry_attempts.or(self.maximum_event_age_in_seconds).is_some() {
                return Ok(());
            }
            return Err(Fault::invalid_parameter_value(
                "You must specify at least one of error handling or destination setting.",
            ));
        };
        let all = [&destinations.on_success, &destinations.on_failure];
        let is_itself = |text: &str| {
            FunctionRef::read(text, None, &call.place)
                .is_ok_and(|it| it.name == named.name.as_str())
        };
        if all.iter().any(|one| one.destination.as_deref().is_some_and(is_itself)) {
            return Err(Fault::invalid_parameter_value(
                "You can't specify the function as a destination for itself.",
            ));
        }
        Ok(())
    }
}

/// `PutFunctionEventInvokeConfig`: replaces what was set before.
pub(super) async fn put(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    set(call, asked, |_| Ok(Kept::default())).await
}

/// `UpdateFunctionEventInvokeConfig`: what is not said stays.
pub(super) async fn update(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let unset = unset(&call, &asked.named(&call)?);
    set(
        call,
        asked,
        |before| if *before == Kept::default() { Err(unset) } else { Ok(before.clone()) },
    )
    .await
}

async fn set(
    call: Call,
    asked: Asked,
    over: impl FnOnce(&Kept) -> Result<Kept, Fault> + Send + 'static,
) -> Result<Answer, Fault> {
    let named = asked.named(&call)?;
    if !call.has::<to::Configure>(&named)? {
        return Err(Fault::resource_not_found("The function doesn't exist."));
    }
    asked.check(&call, &named)?;
    let change = move |kept: &mut Kept| {
        let before = over(kept)?;
        *kept = Kept {
            last_modified: now(),
            maximum_retry_attempts: asked.maximum_retry_attempts.or(before.maximum_retry_attempts),
            maximum_event_age_in_seconds: asked
                .maximum_event_age_in_seconds
                .or(before.maximum_event_age_in_seconds),
            destination_config: asked.destination_config.unwrap_or(before.destination_config),
        };
        Ok(())
    };
    let key = named.version().to_string();
    let kept = call.change(&named, KIND, &key, change).await?;
    Answer::json(&Shown::of(&call, &named, &key, kept))
}

/// Seconds since 1970, to the millisecond.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs_f64() * 1000.0).round() / 1000.0
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedOne {
    function_name: String,
    qualifier: Option<String>,
}

/// `GetFunctionEventInvokeConfig`.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedOne = call.read()?;
    let named = call.named(&asked.function_name, asked.qualifier.as_deref())?;
    let key = named.version().to_string();
    if !call.has::<to::ShowFunction>(&named)? {
        return Err(unset(&call, &named));
    }
    let kept = call.attached(&named, KIND, &key)?.ok_or_else(|| unset(&call, &named))?;
    Answer::json(&Shown::of(&call, &named, &key, kept))
}

/// `DeleteFunctionEventInvokeConfig`.
pub(super) async fn delete(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedOne = call.read()?;
    let named = call.named(&asked.function_name, asked.qualifier.as_deref())?;
    if !call.has::<to::Configure>(&named)? {
        return Err(unset(&call, &named));
    }
    let unset = unset(&call, &named);
    let change = |kept: &mut Kept| match std::mem::take(kept) {
        before if before == Kept::default() => Err(unset),
        _ => Ok(()),
    };
    call.change(&named, KIND, &named.version().to_string(), change).await?;
    Ok(Answer::empty())
}

/// `ListFunctionEventInvokeConfigs`.
pub(super) async fn list(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedPage = call.read()?;
    let named = call.named(&asked.function_name, None)?;
    if !call.has::<to::ShowFunction>(&named)? {
        return Err(Fault::resource_not_found("The function doesn't exist."));
    }
    let all = call.all_attached::<Kept>(&named, KIND)?;
    let key = |(key, _): &(String, Kept)| key.clone();
    let (some, next_marker) = page(all, key, asked.marker.as_deref(), asked.max_items)?;
    let shown = some.into_iter().map(|(key, kept)| Shown::of(&call, &named, &key, kept));
    let shown: Vec<Shown> = shown.collect();
    Answer::part("FunctionEventInvokeConfigs", &shown, next_marker)
}

fn unset(call: &Call, named: &Named) -> Fault {
    let arn = call.arn(named.name.as_str(), Some(&named.version().to_string()));
    Fault::resource_not_found(format!("The function {arn} doesn't have an EventInvokeConfig"))
}

/// How often an event is tried that a version was called with, and for how long.
pub(super) fn tries(app: &App, permit: &Permit<to::Invoke>, qualifier: &Qualifier) -> Tries {
    let text = app.attachments.get(permit, KIND, &qualifier.to_string());
    let kept: Kept = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let usual = Tries::default();
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    Tries {
        again: kept.maximum_retry_attempts.map_or(usual.again, |again| again as usize),
        age: kept.maximum_event_age_in_seconds.map_or(usual.age, seconds),
    }
}
