//! Provisioned concurrency: instances of a published version or an alias that are there before they are called.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use function::Qualifier;
use lambda_api::Fault;
use platform::access::to;
use platform::provisioned::{PROVISIONED, Provisioned};
use serde::{Deserialize, Serialize};

use super::call::{Answer, Call, Named};
use super::concurrency;
use super::configuration::last_modified;
use super::paging::{AskedPage, page};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    function_name: String,
    qualifier: String,
}

impl Asked {
    /// The version or the alias.
    ///
    /// # Errors
    /// When there is none, or it is not published.
    fn named<P>(&self, call: &Call) -> Result<(Named, Qualifier), Fault>
    where
        P: platform::access::Purpose<Subject = function::WholeName>,
    {
        let named = call.named(&self.function_name, Some(&self.qualifier))?;
        let qualifier = named.version();
        if !call.has::<P>(&named)? {
            return Err(call.not_found(&named));
        }
        if qualifier == Qualifier::Latest {
            return Err(unpublished());
        }
        Ok((named, qualifier))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedPut {
    #[serde(flatten)]
    of: Asked,
    provisioned_concurrent_executions: u32,
}

/// A configuration, as an answer shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    function_arn: Option<String>,
    requested_provisioned_concurrent_executions: u32,
    available_provisioned_concurrent_executions: u32,
    allocated_provisioned_concurrent_executions: u32,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_reason: Option<String>,
    last_modified: String,
}

impl Shown {
    fn of(call: &Call, named: &Named, key: &Qualifier, kept: Provisioned) -> Result<Self, Fault> {
        let permit = call.permit::<to::ShowFunction>(&named.name)?;
        let progress = call.app.provisioner.progress(&permit, key);
        let (there, failed) = progress.map_or((0, None), |now| (now.instances, now.failed));
        let there = there.min(kept.instances);
        let status = match &failed {
            _ if there >= kept.instances => "READY",
            Some(_) => "FAILED",
            None => "IN_PROGRESS",
        };
        Ok(Self {
            function_arn: None,
            requested_provisioned_concurrent_executions: kept.instances,
            available_provisioned_concurrent_executions: there,
            allocated_provisioned_concurrent_executions: there,
            status,
            status_reason: failed.filter(|_| status == "FAILED"),
            last_modified: last_modified(UNIX_EPOCH + Duration::from_secs(kept.changed)),
        })
    }
}

/// `PutProvisionedConcurrencyConfig`.
pub(super) async fn put(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedPut = call.read()?;
    let (named, qualifier) = asked.of.named::<to::Configure>(&call)?;
    let instances = asked.provisioned_concurrent_executions;
    let permit = call.permit::<to::Configure>(&named.name)?;
    let provisioner = call.app.provisioner.clone();
    let reserved = concurrency::reserved(&call, &named)?;
    let others = call.all_attached::<Provisioned>(&named, PROVISIONED)?;
    let version = provisioner.version(&permit, &qualifier).ok_or_else(unpublished)?;
    for (key, _) in others.iter().filter(|(key, _)| *key != qualifier.to_string()) {
        let other = key.parse::<Qualifier>().ok();
        let is_same =
            other.as_ref().is_some_and(|it| provisioner.version(&permit, it) == Some(version));
        if is_same && matches!(qualifier, Qualifier::Alias(_)) {
            return Err(Fault::invalid_parameter_value(
                "Alias can't be used for Provisioned Concurrency configuration on an already Provisioned version",
            ));
        }
        if is_same {
            return Err(Fault::invalid_parameter_value(
                "Version is pointed to by a Provisioned Concurrency alias",
            ));
        }
    }
    let elsewhere = others.iter().filter(|(key, _)| *key != qualifier.to_string());
    let elsewhere: u32 = elsewhere.map(|(_, kept)| kept.instances).sum();
    if reserved.is_some_and(|most| instances.saturating_add(elsewhere) > most) {
        return Err(Fault::invalid_parameter_value(
            "Requested Provisioned Concurrency should not be greater than the reservedConcurrentExecution for function",
        ));
    }
    let key = qualifier.clone();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let change = move |kept: &mut Provisioned| {
        // Under the lock of what is kept: of two that ask at once, the second sees the first.
        // Fewer than there were are always to be had.
        let more = instances > kept.instances;
        let checked = if more { provisioner.check(&permit, &key, instances) } else { Ok(()) };
        checked.map_err(|too_many| {
            Fault::invalid_parameter_value(format!(
                "Specified ConcurrentExecutions for function decreases account's UnreservedConcurrentExecution below its minimum value: {too_many}"
            ))
        })?;
        *kept = Provisioned { instances, changed: since.as_secs() };
        Ok(())
    };
    let kept = call.change(&named, PROVISIONED, &qualifier.to_string(), change).await?;
    Answer::json(&Shown::of(&call, &named, &qualifier, kept)?)
}

/// `GetProvisionedConcurrencyConfig`.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let (named, qualifier) = asked.named::<to::ShowFunction>(&call)?;
    let kept = call.attached(&named, PROVISIONED, &qualifier.to_string())?.ok_or_else(missing)?;
    Answer::json(&Shown::of(&call, &named, &qualifier, kept)?)
}

/// `DeleteProvisionedConcurrencyConfig`: the instances grow old as any other.
pub(super) async fn delete(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let (named, qualifier) = asked.named::<to::Configure>(&call)?;
    let change = |kept: &mut Provisioned| {
        *kept = Provisioned::default();
        Ok(())
    };
    call.change(&named, PROVISIONED, &qualifier.to_string(), change).await?;
    Ok(Answer::empty())
}

/// `ListProvisionedConcurrencyConfigs`.
pub(super) async fn list(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedPage = call.read()?;
    let named = call.named_whole(&asked.function_name)?;
    if !call.has::<to::ShowFunction>(&named)? {
        return Err(call.not_found(&named));
    }
    let all = call.all_attached::<Provisioned>(&named, PROVISIONED)?;
    let key = |(key, _): &(String, Provisioned)| key.clone();
    let (some, next_marker) = page(all, key, asked.marker.as_deref(), asked.max_items)?;
    let shown = some.into_iter().map(|(key, kept)| {
        let qualifier = key.parse().map_err(|_| missing())?;
        let function_arn = Some(call.arn(named.name.as_str(), Some(&key)));
        Ok(Shown { function_arn, ..Shown::of(&call, &named, &qualifier, kept)? })
    });
    let shown = shown.collect::<Result<Vec<Shown>, Fault>>()?;
    Answer::part("ProvisionedConcurrencyConfigs", &shown, next_marker)
}

fn unpublished() -> Fault {
    Fault::invalid_parameter_value(
        "Provisioned Concurrency Configs cannot be applied to unpublished function versions.",
    )
}

fn missing() -> Fault {
    Fault::provisioned_concurrency_config_not_found(
        "No Provisioned Concurrency Config found for this function",
    )
}
