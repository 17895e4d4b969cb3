//! Policies: which callers the owner of a function names.
//!
//! They are kept and shown, and give no rights here: a token says what its caller may do. The whole function, each alias
//! and each version has a policy of its own.

use std::collections::BTreeMap;

use function::Qualifier;
use lambda_api::Fault;
use platform::access::to;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::{Answer, Call, Named};

/// What policies are kept as, beside a function.
const KIND: &str = "policy";

/// The operation that shows one.
const GET: &str = "GetPolicy";

/// Most bytes of one policy: the service's own limit.
const MAX_BYTES: usize = 20 << 10;

/// The policy of a function, of its alias or version, or of a version of a layer.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Policy {
    statements: Vec<Statement>,
    revision: String,
}

/// As `GetPolicy` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Statement {
    sid: String,
    effect: String,
    principal: Value,
    action: String,
    resource: String,
    /// Values by operator and key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    condition: BTreeMap<String, BTreeMap<String, String>>,
}

impl Policy {
    /// The text that `GetPolicy` answers.
    pub(super) fn document(&self) -> String {
        let Self { statements, .. } = self;
        json!({ "Version": "2012-10-17", "Id": "default", "Statement": statements }).to_string()
    }

    /// Names the policy as it is now.
    pub(super) fn revision(&self) -> &str {
        &self.revision
    }

    /// Refuses a change of what the caller has not seen as it is. `get`: the operation that shows it.
    pub(super) fn check_revision(&self, asked: Option<&str>, get: &str) -> Result<(), Fault> {
        if asked.is_none_or(|asked| asked == self.revision) {
            return Ok(());
        }
        Err(Fault::precondition_failed(format!(
            "The RevisionId provided does not match the latest RevisionId. Call the {get} API to retrieve the latest RevisionId for your resource."
        )))
    }

    pub(super) fn add(&mut self, statement: Statement, revision: String) -> Result<(), Fault> {
        let sid = &statement.sid;
        if self.statements.iter().any(|one| one.sid == *sid) {
            return Err(Fault::resource_conflict(format!(
                "The statement id ({sid}) provided already exists. Please provide a new statement id, or remove the existing statement."
            )));
        }
        self.statements.push(statement);
        self.revision = revision;
        let bytes = self.document().len();
        if bytes > MAX_BYTES {
            return Err(Fault::policy_length_exceeded(format!(
                "The final policy size ({bytes}) is bigger than the limit ({MAX_BYTES})."
            )));
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, sid: &str, revision: String) -> Result<(), Fault> {
        let before = self.statements.len();
        if before == 0 {
            return Err(Fault::resource_not_found(
                "No policy is associated with the given resource.",
            ));
        }
        self.statements.retain(|one| one.sid != sid);
        match self.statements.len() {
            // Without a statement there is no policy.
            0 => *self = Self::default(),
            after if after < before => self.revision = revision,
            _ => {
                return Err(Fault::resource_not_found(format!(
                    "Statement {sid} is not found in resource policy."
                )));
            }
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedAdd {
    function_name: String,
    qualifier: Option<String>,
    statement_id: String,
    action: String,
    principal: String,
    source_arn: Option<String>,
    source_account: Option<String>,
    #[serde(rename = "PrincipalOrgID")]
    principal_org_id: Option<String>,
    event_source_token: Option<String>,
    function_url_auth_type: Option<String>,
    invoked_via_function_url: Option<bool>,
    revision_id: Option<String>,
}

impl AskedAdd {
    fn statement(self, resource: String) -> Result<Statement, Fault> {
        let via_url = self.invoked_via_function_url.map(|is| is.to_string());
        let conditions = [
            ("ArnLike", "AWS:SourceArn", self.source_arn),
            ("StringEquals", "AWS:SourceAccount", self.source_account),
            ("StringEquals", "aws:PrincipalOrgID", self.principal_org_id),
            ("StringEquals", "lambda:EventSourceToken", self.event_source_token),
            ("StringEquals", "lambda:FunctionUrlAuthType", self.function_url_auth_type),
            ("Bool", "lambda:InvokedViaFunctionUrl", via_url),
        ];
        let mut condition = BTreeMap::<String, BTreeMap<String, String>>::new();
        for (operator, key, value) in conditions {
            if let Some(value) = value {
                condition.entry(operator.to_owned()).or_default().insert(key.to_owned(), value);
            }
        }
        Statement::allow(self.statement_id, &self.principal, self.action, resource, condition)
    }
}

impl Statement {
    /// Names a principal that may do something.
    ///
    /// # Errors
    /// When nothing has such a principal.
    pub(super) fn allow(
        sid: String,
        named: &str,
        action: String,
        resource: String,
        condition: BTreeMap<String, BTreeMap<String, String>>,
    ) -> Result<Self, Fault> {
        let (effect, principal) = ("Allow".to_owned(), principal(named)?);
        Ok(Self { sid, effect, principal, action, resource, condition })
    }
}

/// All callers, a service, an account, or what an ARN names.
fn principal(text: &str) -> Result<Value, Fault> {
    let is_account = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    match text {
        "*" => Ok(json!("*")),
        account if is_account => Ok(json!({ "AWS": format!("arn:aws:iam::{account}:root") })),
        arn if arn.starts_with("arn:") => Ok(json!({ "AWS": arn })),
        service if service.contains('.') => Ok(json!({ "Service": service })),
        _ => Err(Fault::invalid_parameter_value(
            "The provided principal was invalid. Please check the principal and try again.",
        )),
    }
}

/// `AddPermission`.
pub(super) async fn add(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedAdd = call.read()?;
    let named = call.named(&asked.function_name, asked.qualifier.as_deref())?;
    if named.qualifier == Some(Qualifier::Latest) {
        return Err(Fault::invalid_parameter_value(
            "We currently do not support adding policies for $LATEST.",
        ));
    }
    if !call.has::<to::Configure>(&named)? {
        return Err(missing(&call, named)?);
    }
    let key = key(&named);
    let resource = call.arn(named.name.as_str(), Some(&*key).filter(|key| !key.is_empty()));
    // A request has an id of its own, and so has each state of a policy.
    let (revision_id, revision) = (asked.revision_id.clone(), call.id.to_string());
    let statement = asked.statement(resource)?;
    let added = json!(statement).to_string();
    let change = move |policy: &mut Policy| {
        policy.check_revision(revision_id.as_deref(), GET)?;
        policy.add(statement, revision)
    };
    call.change(&named, KIND, &key, change).await?;
    Answer::json(&json!({ "Statement": added }))
}

/// There is no such function, or it has no such alias or version.
fn missing(call: &Call, named: Named) -> Result<Fault, Fault> {
    let whole = Named { qualifier: None, ..named };
    match named.qualifier {
        Some(Qualifier::Alias(alias)) if call.has::<to::Configure>(&whole)? => {
            let arn = call.arn(whole.name.as_str(), Some(alias.as_str()));
            Ok(Fault::resource_not_found(format!("Cannot find alias arn: {arn}")))
        }
        qualifier => Ok(call.not_found(&Named { qualifier, ..whole })),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedRemove {
    function_name: String,
    qualifier: Option<String>,
    statement_id: String,
    revision_id: Option<String>,
}

/// `RemovePermission`.
pub(super) async fn remove(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedRemove = call.read()?;
    let named = call.named(&asked.function_name, asked.qualifier.as_deref())?;
    if !call.has::<to::Configure>(&named)? {
        let arn = call.arn(named.name.as_str(), None);
        return Err(Fault::resource_not_found(format!("No policy found for: {arn}")));
    }
    let revision = call.id.to_string();
    let change = move |policy: &mut Policy| {
        policy.check_revision(asked.revision_id.as_deref(), GET)?;
        policy.remove(&asked.statement_id, revision)
    };
    call.change(&named, KIND, &key(&named), change).await?;
    Ok(Answer::empty())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    function_name: String,
    qualifier: Option<String>,
}

/// `GetPolicy`: all statements, as one text.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = call.named(&asked.function_name, asked.qualifier.as_deref())?;
    let none = || Fault::resource_not_found("The resource you requested does not exist.");
    if !call.has::<to::ShowFunction>(&named)? {
        return Err(none());
    }
    let policy: Policy = call.attached(&named, KIND, &key(&named))?.ok_or_else(none)?;
    Answer::json(&json!({ "Policy": policy.document(), "RevisionId": policy.revision }))
}

/// What a policy is kept under.
fn key(named: &Named) -> String {
    named.qualifier.as_ref().map(ToString::to_string).unwrap_or_default()
}
