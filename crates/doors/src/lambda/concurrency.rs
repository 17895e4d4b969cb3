//! Reserved concurrency: how many calls of a function run at once. It is a limit: no sandboxes are set aside.

use lambda_api::Fault;
use platform::limits::concurrency::RESERVED;
use platform::provisioned::{PROVISIONED, Provisioned};
use serde::{Deserialize, Serialize};

use super::call::{Answer, Call, Named};

/// `Concurrency`, as a request says it and an answer shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Concurrency {
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_concurrent_executions: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    function_name: String,
    reserved_concurrent_executions: Option<u32>,
}

impl Asked {
    /// The function: its versions share its concurrency.
    fn named(&self, call: &Call) -> Result<Named, Fault> {
        let named = call.named(&self.function_name, None)?;
        match named.qualifier {
            None => Ok(named),
            Some(_) => Err(Fault::invalid_parameter_value(
                "This operation is permitted on Lambda functions only. Aliases and versions do not support this operation. Please specify either a function name or an unqualified function ARN.",
            )),
        }
    }
}

/// `PutFunctionConcurrency`.
pub(super) async fn put(call: Call) -> Result<Answer, Fault> {
    let reserved_concurrent_executions = set(call).await?;
    Answer::json(&Concurrency { reserved_concurrent_executions })
}

/// `DeleteFunctionConcurrency`.
pub(super) async fn delete(call: Call) -> Result<Answer, Fault> {
    set(call).await?;
    Ok(Answer::empty())
}

/// Sets what the request says, and removes what it does not.
async fn set(mut call: Call) -> Result<Option<u32>, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    if let Some(number) = asked.reserved_concurrent_executions {
        let all = call.all_attached::<Provisioned>(&named, PROVISIONED)?;
        let promised: u32 = all.iter().map(|(_, kept)| kept.instances).sum();
        if number < promised {
            return Err(Fault::invalid_parameter_value(format!(
                "ReservedConcurrentExecutions {number} should not be lower than function's total provisioned concurrency [{promised}]."
            )));
        }
    }
    let change = move |kept: &mut Option<u32>| {
        *kept = asked.reserved_concurrent_executions;
        Ok(())
    };
    call.change(&named, RESERVED, "", change).await
}

/// `GetFunctionConcurrency`.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    let concurrency = of(&call, &named)?;
    Answer::json(&concurrency.unwrap_or(Concurrency { reserved_concurrent_executions: None }))
}

/// The number that a function has reserved, where it has.
///
/// # Errors
/// When it is not there.
pub(super) fn reserved(call: &Call, named: &Named) -> Result<Option<u32>, Fault> {
    call.attached(named, RESERVED, "")
}

/// The reserved concurrency of a function.
///
/// # Errors
/// When it is not there.
pub(super) fn of(call: &Call, named: &Named) -> Result<Option<Concurrency>, Fault> {
    Ok(reserved(call, named)?
        .map(|number| Concurrency { reserved_concurrent_executions: Some(number) }))
}
