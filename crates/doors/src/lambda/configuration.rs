//! A function's configuration, as the service shows it.

use std::time::{Duration, SystemTime};

use base64::prelude::*;
use function::{LATEST, Qualifier, VersionRecord};
use lambda_api::Fault;
use platform::functions::{Function, ReleaseError};
use platform::logs::stamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::call::Call;
use super::code::Archive;
use super::environment;
use crate::error::ApiError;

/// How a function was asked for, which its ARN and its states depend on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shown<'a> {
    /// By its name, and by a qualifier where there was one.
    Asked(Option<&'a Qualifier>),
    /// In a list of functions.
    InFunctions,
    /// In a list of versions.
    InVersions,
    /// As a version that was just published.
    Published,
    /// As a function that was just made: its ARN names no version, even where one was published.
    Created,
}

/// `FunctionConfiguration`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct FunctionConfiguration {
    function_name: String,
    function_arn: String,
    runtime: String,
    role: String,
    handler: String,
    code_size: u64,
    description: String,
    timeout: u64,
    memory_size: u64,
    last_modified: String,
    #[serde(rename = "CodeSha256")]
    code_sha256: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    layers: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vpc_config: Option<Value>,
    #[serde(rename = "KMSKeyArn", skip_serializing_if = "Option::is_none")]
    kms_key_arn: Option<Value>,
    tracing_config: Value,
    revision_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_update_status: Option<&'static str>,
    package_type: &'static str,
    architectures: [&'static str; 1],
    ephemeral_storage: Value,
    snap_start: Value,
    runtime_version_config: Value,
    logging_config: Value,
}

/// What the service shows of a function at one of its versions.
pub(super) fn of(call: &Call, function: &Function, shown: Shown<'_>) -> FunctionConfiguration {
    let (record, manifest) = (&function.current().record, function.manifest());
    let version = function.number.map_or_else(|| LATEST.to_owned(), |number| number.to_string());
    let asked = match shown {
        Shown::Asked(qualifier) => qualifier.map(ToString::to_string),
        Shown::InFunctions | Shown::Created => None,
        Shown::InVersions | Shown::Published => Some(version.clone()),
    };
    let has_state = matches!(shown, Shown::Asked(_) | Shown::Published | Shown::Created);
    let environment = environment::of_user(&manifest.environment);
    let (told, lambda) = (manifest.told.as_deref(), manifest.lambda.as_ref());
    let kept = |member: &str, usual: Value| {
        let kept =
            told.and_then(|told| serde_json::from_str(told.without_effect.get(member)?).ok());
        kept.unwrap_or(usual)
    };
    let optional = |member: &str| Some(kept(member, Value::Null)).filter(|kept| !kept.is_null());
    let snap_start = kept("SnapStart", json!({ "ApplyOn": "None" }));
    let logging = kept("LoggingConfig", json!({}));
    let description = function.description.clone().filter(|said| !said.is_empty());
    let arn = call.arn(function.name(), asked.as_deref());
    FunctionConfiguration {
        function_name: function.name().to_owned(),
        runtime: lambda
            .map_or_else(|| format!("python{}", record.python), |lambda| lambda.runtime.clone()),
        role: told.map_or_else(
            || format!("arn:aws:iam::{}:role/lambswool", call.place.account),
            |told| told.role.clone(),
        ),
        handler: lambda.map_or_else(
            || format!("{}.{}", manifest.module, manifest.function),
            |lambda| lambda.handler.clone(),
        ),
        code_size: code_bytes(function),
        description: description
            .or_else(|| told.map(|told| told.description.clone()))
            .unwrap_or_default(),
        timeout: whole_seconds(manifest.timeout),
        memory_size: manifest.limits.memory_bytes >> 20,
        last_modified: last_modified(function.stored.updated),
        code_sha256: code_digest(record),
        layers: manifest
            .layers
            .iter()
            .map(|layer| json!({ "Arn": layer.arn, "CodeSize": layer.code_size }))
            .collect(),
        dead_letter_config: optional("DeadLetterConfig"),
        vpc_config: optional("VpcConfig"),
        kms_key_arn: optional("KMSKeyArn"),
        environment: (!environment.is_empty()).then(|| json!({ "Variables": environment })),
        tracing_config: kept("TracingConfig", json!({ "Mode": "PassThrough" })),
        revision_id: revision(function),
        state: has_state.then_some("Active"),
        last_update_status: has_state.then_some("Successful"),
        package_type: "Zip",
        architectures: [ARCHITECTURE],
        ephemeral_storage: json!({ "Size": manifest.limits.scratch_bytes >> 20 }),
        snap_start: with(snap_start, "OptimizationStatus", "Off"),
        runtime_version_config: json!({ "RuntimeVersionArn": runtime_version(call, record) }),
        logging_config: with(
            with(logging, "LogFormat", "Text"),
            "LogGroup",
            &format!("/aws/lambda/{}", function.name()),
        ),
        function_arn: arn,
        version,
    }
}

/// The same, with a member where it has none of that name.
fn with(mut value: Value, member: &str, usual: &str) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.entry(member).or_insert_with(|| usual.into());
    }
    value
}

impl FunctionConfiguration {
    /// The same, as it would be with another archive.
    pub(super) fn with_code(self, archive: &Archive) -> Self {
        Self { code_size: archive.bytes, code_sha256: archive.sha256.clone(), ..self }
    }
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// The architecture that functions run on here.
pub(super) const ARCHITECTURE: &str =
    if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" };

fn runtime_version(call: &Call, record: &VersionRecord) -> String {
    let digest = blake3::hash(record.python.as_bytes()).to_hex();
    format!("arn:aws:lambda:{}::runtime:{digest}", call.place.region)
}

/// Bytes of the archive that its code came in.
pub(super) fn code_bytes(function: &Function) -> u64 {
    function.manifest().told.as_ref().map_or(0, |told| told.code_size)
}

/// The hash of the archive that its code came in; of code that came otherwise, a hash of its files.
fn code_digest(record: &VersionRecord) -> String {
    if let Some(told) = &record.manifest.told {
        return told.code_sha256.clone();
    }
    let text = record.bundle.as_str();
    let digits = (0..text.len()).step_by(2);
    let bytes: Vec<u8> =
        digits.filter_map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect();
    BASE64_STANDARD.encode(bytes)
}

/// `2026-01-02T03:04:05.678+0000`.
pub(super) fn last_modified(at: SystemTime) -> String {
    format!("{}+0000", stamp(at).trim_end_matches('Z'))
}

/// Names the function at this version as it is now: another one after each change.
pub(super) fn revision(function: &Function) -> String {
    let updated = stamp(function.stored.updated);
    let number = function.number.unwrap_or_default();
    revision_of(&format!("{} {updated} {number}", function.current().id))
}

/// Refuses a change of what the caller has not seen as it is.
///
/// # Errors
/// When the revision is another.
pub(super) fn check_revision(function: &Function, asked: Option<&str>) -> Result<(), Fault> {
    if asked.is_none_or(|asked| asked == revision(function)) {
        return Ok(());
    }
    Err(Fault::precondition_failed(REVISION))
}

/// Why versions and aliases stay as they are, in the service's words; `missing` is said where there is no such function.
pub(super) fn not_released(error: ReleaseError, missing: Fault) -> Fault {
    match error {
        ReleaseError::Unknown(_) => missing,
        ReleaseError::Changed(_) => Fault::precondition_failed(REVISION),
        error => ApiError::from(error).into(),
    }
}

/// What a caller is told that has not seen a function or an alias as it is.
pub(super) const REVISION: &str = "The RevisionId provided does not match the latest RevisionId. Call the GetFunction/GetAlias API to retrieve the latest RevisionId for your resource.";

/// Refuses to publish other code than the caller means.
///
/// # Errors
/// When the hash is another.
pub(super) fn check_code(function: &Function, asked: Option<&str>) -> Result<(), Fault> {
    let is = code_digest(&function.current().record);
    match asked {
        Some(asked) if asked != is => Err(Fault::invalid_parameter_value(format!(
            "CodeSHA256 ({asked}) is different from current CodeSHA256 in $LATEST ({is}). Please try again with the CodeSHA256 in $LATEST."
        ))),
        _ => Ok(()),
    }
}

/// A text in the form of a UUID, by its hash.
pub(super) fn revision_of(text: &str) -> String {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let part = |from: usize, to: usize| hash.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}
