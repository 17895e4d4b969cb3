//! Making functions, and changing their code and their configuration.
//!
//! ```text
//!   CreateFunction               zip ──┐
//!   UpdateFunctionCode           zip ──┼─► Declared, with what the API is to show again ─► Deployer ─► Active
//!   UpdateFunctionConfiguration  the zip of before ┘
//! ```
//! Each answers when it is done, so a function is `Active` from the first answer on. A change is made of what its caller has
//! seen: where another comes between, it is refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bundle::manifest::{Declared, Runtime};
use function::{Kind, Limits, LogLevel, Manifest, Network, Reset, Told};
use lambda_api::Fault;
use platform::access::{Permit, to};
use platform::deploy::progress::Silent;
use platform::deploy::workshop::{Bundle, Files, MakeError, SettingsFrom};
use platform::deploy::{DeployError, Order};
use platform::functions::{Function, Over, RegistryError};
use serde::Deserialize;
use serde_json::Value;

use super::attached;
use super::call::{Answer, Call, Named};
use super::code::{Archive, Code};
use super::configuration::{self, ARCHITECTURE, Shown};
use super::environment::{self, Environment};
use crate::error::ApiError;
use crate::native::random_id;

/// What a function has that says nothing.
const MEMORY_MIB: u64 = 128;
const SCRATCH_MIB: u64 = 512;
const TIMEOUT_SECONDS: u64 = 3;

/// Instances of one function at a time, and what each may hold.
const CONCURRENCY: u32 = 1000;
const PROCESSES: u32 = 1024;
const SCRATCH_FILES: u32 = 65_536;

/// Members of a configuration that are kept and shown, and have no effect here.
const WITHOUT_EFFECT: [&str; 6] =
    ["DeadLetterConfig", "KMSKeyArn", "LoggingConfig", "SnapStart", "TracingConfig", "VpcConfig"];

/// Members that cannot be kept: a function that has one would not do what its author expects.
const REFUSED: [(&str, &str); 9] = [
    ("FileSystemConfigs", "no file systems are mounted here"),
    ("ImageConfig", "functions are archives here, and no container images"),
    ("CapacityProviderConfig", "functions run on the worker's own machine"),
    ("DurableConfig", "executions are not recorded here"),
    ("TenancyConfig", "tenants are those of the worker's tokens here"),
    ("AcceleratorConfig", "the worker has no accelerators"),
    ("CodeSigningConfigArn", "signatures of code are not checked here"),
    ("PublishTo", "a published version has a number of its own"),
    ("RuntimeConfig", "a runtime is updated with the machine's Python"),
];

/// What the three operations have in common.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Configuration {
    role: Option<String>,
    handler: Option<String>,
    runtime: Option<String>,
    description: Option<String>,
    timeout: Option<u64>,
    memory_size: Option<u64>,
    environment: Option<Environment>,
    ephemeral_storage: Option<EphemeralStorage>,
    layers: Option<Vec<String>>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EphemeralStorage {
    size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedCreate {
    function_name: String,
    code: Code,
    #[serde(default)]
    publish: bool,
    package_type: Option<String>,
    architectures: Option<Vec<String>>,
    tags: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    configuration: Configuration,
}

/// `CreateFunction`.
pub(super) async fn create(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedCreate = call.read()?;
    let named = call.named_whole(&asked.function_name);
    let named = named.map_err(|fault| match fault.code() {
        "ResourceNotFoundException" => Fault::invalid_parameter_value(format!(
            "{} is no name of a function here: it has 1 to 64 letters, digits, `-` and `_`, and begins with a letter or a digit",
            asked.function_name
        )),
        _ => fault,
    })?;
    let permit = call.permit::<to::Deploy>(&named.name)?;
    let tags = asked.tags.unwrap_or_default();
    super::tags::check(&tags)?;
    if asked.package_type.as_deref() == Some("Image") {
        return Err(Fault::invalid_parameter_value(
            "PackageType Image is not supported by Lambswool: a function is a zip archive here",
        ));
    }
    check_architecture(asked.architectures.as_deref())?;
    let lacking = |what: &str| {
        Fault::invalid_parameter_value(format!(
            "{what} is mandatory for functions created with deployment packages."
        ))
    };
    let configuration = asked.configuration;
    if configuration.runtime.is_none() && configuration.handler.is_none() {
        return Err(Fault::invalid_parameter_value(
            "Runtime and Handler are mandatory parameters for functions created with deployment packages.",
        ));
    }
    let runtime = configuration.runtime.clone().ok_or_else(|| lacking("Runtime"))?;
    let handler = configuration.handler.clone().ok_or_else(|| lacking("Handler"))?;
    let role = configuration.role.clone().unwrap_or_default();
    let archive = asked.code.archive(&call, &permit).await?;
    call.forget_body();
    let told = Told { role, ..Told::default() };
    let limits = Limits {
        memory_bytes: MEMORY_MIB << 20,
        scratch_bytes: SCRATCH_MIB << 20,
        scratch_inodes: SCRATCH_FILES,
        pids: PROCESSES,
        ..Limits::default()
    };
    let declared = Declared {
        handler,
        python: String::new(),
        kind: Kind::Container,
        reset: Reset::Never,
        limits,
        network: Network::None,
        egress: Vec::new(),
        timeout: Duration::from_secs(TIMEOUT_SECONDS),
        concurrency: CONCURRENCY,
        environment: BTreeMap::new(),
        told: Some(Box::new(told)),
        layers: Vec::new(),
        runtime: Some(Runtime { name: runtime, json_level: None }),
    };
    let declared = configuration.over(&call, declared)?.of_archive(&archive).revised()?;
    let (files, held) = archive.into_files();
    let order = order(&permit, declared, files, Over::Nothing);
    let publish = asked.publish;
    to_the_end(call, async move |call| {
        let function = put(&call, &named, order).await;
        drop(held);
        let function = function?;
        if !tags.is_empty() {
            super::tags::set(&call, &named, tags).await?;
        }
        answer(&call, &named, function, publish, Shown::Created).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedCode {
    function_name: String,
    #[serde(flatten)]
    code: Code,
    architectures: Option<Vec<String>>,
    #[serde(default)]
    publish: bool,
    #[serde(default)]
    dry_run: bool,
    revision_id: Option<String>,
}

/// `UpdateFunctionCode`.
pub(super) async fn update_code(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedCode = call.read()?;
    let named = call.named_whole(&asked.function_name)?;
    let permit = call.permit::<to::Deploy>(&named.name)?;
    check_architecture(asked.architectures.as_deref())?;
    let current = current(&call, &named)?;
    configuration::check_revision(&current, asked.revision_id.as_deref())?;
    let archive = asked.code.archive(&call, &permit).await?;
    call.forget_body();
    let declared = before(&current)?.of_archive(&archive).revised()?;
    if asked.dry_run {
        call.about("only tried");
        let shown = configuration::of(&call, &current, Shown::Asked(None));
        return Answer::json(&shown.with_code(&archive));
    }
    let over = Over::Version(current.current().id.clone());
    let (files, held) = archive.into_files();
    let order = order(&permit, declared, files, over);
    let publish = asked.publish;
    to_the_end(call, async move |call| {
        let function = put(&call, &named, order).await;
        drop(held);
        let function = function?;
        answer(&call, &named, function, publish, Shown::Asked(None)).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedConfiguration {
    function_name: String,
    revision_id: Option<String>,
    #[serde(flatten)]
    configuration: Configuration,
}

/// `UpdateFunctionConfiguration`: what is not said stays.
pub(super) async fn update_configuration(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedConfiguration = call.read()?;
    let named = call.named_whole(&asked.function_name)?;
    let permit = call.permit::<to::Deploy>(&named.name)?;
    let current = current(&call, &named)?;
    configuration::check_revision(&current, asked.revision_id.as_deref())?;
    let declared = asked.configuration.over(&call, before(&current)?)?.revised()?;
    let files = Files::Kept(current.current().record.bundle.clone());
    let over = Over::Version(current.current().id.clone());
    let order = order(&permit, declared, files, over);
    to_the_end(call, async move |call| {
        let function = put(&call, &named, order).await?;
        answer(&call, &named, function, false, Shown::Asked(None)).await
    })
    .await
}

impl Configuration {
    /// These settings, over those that are there.
    fn over(mut self, call: &Call, declared: Declared) -> Result<Declared, Fault> {
        for (member, why) in REFUSED {
            let said = self.others.get(member);
            if said.is_some_and(|said| said.as_array().is_none_or(|list| !list.is_empty())) {
                return Err(Fault::invalid_parameter_value(format!(
                    "{member} is not supported by Lambswool: {why}"
                )));
            }
        }
        let subnets = self.others.get("VpcConfig").and_then(|vpc| vpc.get("SubnetIds"));
        if subnets.and_then(Value::as_array).is_some_and(|subnets| !subnets.is_empty()) {
            return Err(Fault::invalid_parameter_value(
                "VpcConfig is not supported by Lambswool: set the variable LAMBSWOOL_EGRESS to where the function may connect to, and have the worker's operator allow it",
            ));
        }
        let mut told = *declared.told.unwrap_or_default();
        for member in WITHOUT_EFFECT {
            if let Some(said) = self.others.remove(member) {
                told.without_effect.insert(member.to_owned(), said.to_string());
            }
        }
        told.role = self.role.unwrap_or(told.role);
        told.description = self.description.unwrap_or(told.description);
        let before = declared.runtime.map(|runtime| runtime.name);
        let name = self.runtime.or(before).unwrap_or_default();
        let python = python(&name)?;
        let json_level = json_level(told.without_effect.get("LoggingConfig"));
        let environment = match self.environment {
            Some(environment) => environment.checked()?,
            None => environment::of_user(&declared.environment),
        };
        let layers = match &self.layers {
            Some(arns) => attached::find(call, arns)?,
            None => declared.layers,
        };
        let limits = Limits {
            memory_bytes: self.memory_size.map_or(declared.limits.memory_bytes, |mib| mib << 20),
            scratch_bytes: self
                .ephemeral_storage
                .map_or(declared.limits.scratch_bytes, |storage| storage.size << 20),
            ..declared.limits
        };
        let declared = Declared {
            handler: self.handler.unwrap_or(declared.handler),
            python,
            runtime: Some(Runtime { name, json_level }),
            limits,
            timeout: self.timeout.map_or(declared.timeout, Duration::from_secs),
            environment: environment::complete(environment, &call.place),
            told: Some(Box::new(told)),
            layers,
            ..declared
        };
        declared.settled().map_err(|error| Fault::invalid_parameter_value(error.to_string()))
    }
}

/// The rest of what a version is declared to be.
trait Rest: Sized {
    /// Of this archive.
    fn of_archive(self, archive: &Archive) -> Self;

    /// Under a new revision.
    fn revised(self) -> Result<Self, Fault>;
}

impl Rest for Declared {
    fn of_archive(mut self, archive: &Archive) -> Self {
        if let Some(told) = &mut self.told {
            told.code_sha256.clone_from(&archive.sha256);
            told.code_size = archive.bytes;
        }
        self
    }

    fn revised(mut self) -> Result<Self, Fault> {
        let drawn = random_id();
        let drawn = drawn.map_err(|_| ApiError::internal("the kernel gave no random bytes"))?;
        if let Some(told) = &mut self.told {
            drawn.as_str().clone_into(&mut told.revision);
        }
        Ok(self)
    }
}

/// The function as it is now.
fn current(call: &Call, named: &Named) -> Result<Arc<Function>, Fault> {
    let permit = call.permit::<to::ShowFunction>(&named.name)?;
    call.app.functions.show(&permit).ok_or_else(|| call.not_found(named))
}

/// What the function is declared to be.
fn before(function: &Function) -> Result<Declared, Fault> {
    let Manifest { kind, reset, limits, network, egress, timeout, concurrency, .. } =
        function.manifest();
    let refused = || {
        Fault::invalid_parameter_value(format!(
            "{} was deployed with `wool deploy`, and its files say what it is: deploy it that way again, or remove it first",
            function.name()
        ))
    };
    let (told, lambda) = (function.manifest().told.clone(), function.manifest().lambda.clone());
    let (told, lambda) = told.zip(lambda).ok_or_else(refused)?;
    Ok(Declared {
        handler: lambda.handler,
        python: function.current().record.python.clone(),
        kind: *kind,
        reset: *reset,
        limits: *limits,
        network: *network,
        egress: egress.clone(),
        timeout: *timeout,
        concurrency: *concurrency,
        environment: function.manifest().environment.clone(),
        told: Some(told),
        layers: function.manifest().layers.clone(),
        runtime: Some(Runtime { name: lambda.runtime, json_level: lambda.json_level }),
    })
}

/// Does all that is left, though the client may go away meanwhile: a function is not left without its tags.
async fn to_the_end<W>(call: Call, work: impl FnOnce(Call) -> W) -> Result<Answer, Fault>
where
    W: Future<Output = Result<Answer, Fault>> + Send + 'static,
{
    let act = call.act.clone();
    let work = work(call);
    match act {
        Some(act) => act.carry_out(work).await,
        None => work.await,
    }
}

fn order(permit: &Permit<to::Deploy>, declared: Declared, files: Files, over: Over) -> Order {
    let settings = SettingsFrom::Declared(Box::new(declared));
    Order::new(permit, Bundle { files, settings }, false, false).over(over)
}

async fn put(call: &Call, named: &Named, order: Order) -> Result<Arc<Function>, Fault> {
    let deployed = call.app.deployer.deploy(order, Arc::new(Silent), |_| {}).await;
    let function = deployed.map_err(|error| refused(call, named, error))?;
    if let Some(act) = &call.act {
        act.made(&function.current().id.0);
    }
    Ok(function)
}

/// The configuration as it is now; published first where that was asked for.
async fn answer(
    call: &Call,
    named: &Named,
    function: Arc<Function>,
    publish: bool,
    shown: Shown<'_>,
) -> Result<Answer, Fault> {
    if !publish {
        return Answer::json(&configuration::of(call, &function, shown));
    }
    let permit = call.permit::<to::Publish>(&named.name)?;
    let seen = Some(function.current().id.clone());
    let published = call.app.releases.publish(&permit, String::new(), seen).await;
    let missing = call.not_found(named);
    let release = published.map_err(|error| configuration::not_released(error, missing))?;
    call.about(&release.number.to_string());
    let shown = if matches!(shown, Shown::Created) { shown } else { Shown::Published };
    Answer::json(&configuration::of(call, &release.function, shown))
}

/// Why nothing was deployed, in the service's words.
fn refused(call: &Call, named: &Named, error: DeployError) -> Fault {
    match &error {
        DeployError::Store(RegistryError::Exists(name)) => {
            Fault::resource_conflict(format!("Function already exist: {}", name.name()))
        }
        DeployError::Store(RegistryError::Unknown(_)) => call.not_found(named),
        DeployError::Store(RegistryError::Changed(_)) => Fault::resource_conflict(format!(
            "The operation cannot be performed at this time. An update is in progress for resource: {}",
            call.arn(named.name.as_str(), None)
        )),
        DeployError::Make(MakeError::Function { step: "bundle", message }) => {
            Fault::invalid_parameter_value(format!(
                "Could not unzip uploaded file. Please check your file, then try to upload again. ({message})"
            ))
        }
        DeployError::Make(MakeError::Function { message, .. }) => {
            Fault::invalid_parameter_value(message.clone())
        }
        _ => ApiError::from(&error).into(),
    }
}

fn check_architecture(asked: Option<&[String]>) -> Result<(), Fault> {
    match asked {
        Some(list) if list.iter().any(|one| one != ARCHITECTURE) => {
            Err(Fault::invalid_parameter_value(format!(
                "Architectures {list:?} are not supported by Lambswool: this worker's machine is {ARCHITECTURE}"
            )))
        }
        _ => Ok(()),
    }
}

/// From which level on the log is of JSON objects, by the text of `LoggingConfig`; none: it is text.
fn json_level(logging: Option<&String>) -> Option<LogLevel> {
    let logging: Value = serde_json::from_str(logging?).ok()?;
    let is_json = logging.get("LogFormat").and_then(Value::as_str) == Some("JSON");
    let level = logging.get("ApplicationLogLevel").cloned();
    let level = level.and_then(|level| serde_json::from_value(level).ok());
    is_json.then(|| level.unwrap_or_default())
}

/// The Python of a runtime: `3.12` of `python3.12`; none for a program, which any serves.
fn python(runtime: &str) -> Result<String, Fault> {
    if function::lambda::is_program(runtime) {
        return Ok(String::new());
    }
    let minor = runtime.strip_prefix("python3.").unwrap_or_default();
    match minor.parse::<u8>() {
        // As it is written, and not otherwise: `+12` and `012` are numbers, too.
        Ok(number @ 11..) if number.to_string() == minor => Ok(format!("3.{minor}")),
        _ => Err(Fault::invalid_parameter_value(format!(
            "The runtime {runtime} is not supported by Lambswool: it runs python3.11 and later, and provided.al2023"
        ))),
    }
}
