//! Settings of functions that have one value here, or no effect: for tools that ask for them whatever they do.

use lambda_api::Fault;
use platform::access::to;
use serde::Deserialize;
use serde_json::json;

use super::call::{Answer, Call, Named};

/// What the answer to recursion is kept as, beside a function.
const RECURSION: &str = "recursion";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    function_name: String,
    qualifier: Option<String>,
    update_runtime_on: Option<String>,
    recursive_loop: Option<String>,
}

impl Asked {
    fn named(&self, call: &Call) -> Result<Named, Fault> {
        call.named(&self.function_name, self.qualifier.as_deref())
    }
}

/// `GetFunctionCodeSigningConfig`: no function has one.
pub(super) async fn code_signing(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    if !call.has::<to::ShowFunction>(&named)? {
        return Err(call.not_found(&named));
    }
    Answer::json(&json!({ "FunctionName": named.name.as_str() }))
}

/// `GetRuntimeManagementConfig`: a function runs on what the machine has of its Python.
pub(super) async fn get_runtime_management(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    if !call.has::<to::ShowFunction>(&named)? {
        return Err(call.not_found(&named));
    }
    runtime_management(&call, &named)
}

/// `PutRuntimeManagementConfig`: nothing but `Auto` can be asked for.
pub(super) async fn put_runtime_management(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    if !call.has::<to::Configure>(&named)? {
        return Err(call.not_found(&named));
    }
    if asked.update_runtime_on.as_deref() != Some("Auto") {
        return Err(Fault::invalid_parameter_value(
            "UpdateRuntimeOn can only be Auto: Lambswool runs a function on the Python that the machine has, and keeps no earlier one",
        ));
    }
    runtime_management(&call, &named)
}

fn runtime_management(call: &Call, named: &Named) -> Result<Answer, Fault> {
    let arn = call.arn(named.name.as_str(), Some(&named.version().to_string()));
    Answer::json(&json!({ "UpdateRuntimeOn": "Auto", "FunctionArn": arn }))
}

/// `GetFunctionRecursionConfig`.
pub(super) async fn get_recursion(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    recursion(call.attached(&named, RECURSION, "")?)
}

/// `PutFunctionRecursionConfig`: kept and shown. No loop is looked for.
pub(super) async fn put_recursion(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    let change = move |kept: &mut Option<String>| {
        *kept = asked.recursive_loop;
        Ok(())
    };
    recursion(call.change(&named, RECURSION, "", change).await?)
}

fn recursion(kept: Option<String>) -> Result<Answer, Fault> {
    Answer::json(&json!({ "RecursiveLoop": kept.as_deref().unwrap_or("Terminate") }))
}
