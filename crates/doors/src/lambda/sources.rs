//! Event source mappings: queues whose messages a function is called with.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use function::Qualifier;
use lambda_api::Fault;
use platform::access::to;
use platform::sources::{SOURCE, Source, Sources};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call::{Answer, Call, Named};
use super::paging::page;
use crate::error::ApiError;
use crate::native::random_id;

/// Messages of a batch that is not said, and most without a window: of a queue, as on AWS.
const BATCH: usize = 10;

/// How a queue's name ends whose messages have an order.
const FIFO: &str = ".fifo";

/// A function that names the messages which failed says so by this.
const REPORTS: &str = "ReportBatchItemFailures";

/// Members that ask for what is not done here, unless they are empty.
const REFUSED: [(&str, &str); 15] = [
    ("AmazonManagedKafkaEventSourceConfig", ONLY_QUEUES),
    ("BisectBatchOnFunctionError", ONLY_QUEUES),
    ("DestinationConfig", ONLY_QUEUES),
    ("DocumentDBEventSourceConfig", ONLY_QUEUES),
    ("FilterCriteria", "every message is given to the function: have it look at them"),
    ("MaximumRecordAgeInSeconds", ONLY_QUEUES),
    ("MaximumRetryAttempts", ONLY_QUEUES),
    ("ParallelizationFactor", ONLY_QUEUES),
    ("Queues", ONLY_QUEUES),
    ("SelfManagedEventSource", ONLY_QUEUES),
    ("SelfManagedKafkaEventSourceConfig", ONLY_QUEUES),
    ("SourceAccessConfigurations", ONLY_QUEUES),
    ("StartingPosition", ONLY_QUEUES),
    ("Topics", ONLY_QUEUES),
    ("TumblingWindowInSeconds", ONLY_QUEUES),
];
const ONLY_QUEUES: &str = "event sources are queues of SQS here";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedChange {
    #[serde(rename = "UUID")]
    id: Option<String>,
    event_source_arn: Option<String>,
    function_name: Option<String>,
    enabled: Option<bool>,
    batch_size: Option<usize>,
    maximum_batching_window_in_seconds: Option<u64>,
    function_response_types: Option<Vec<String>>,
    scaling_config: Option<Scaling>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// `ScalingConfig`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Scaling {
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum_concurrency: Option<u32>,
}

/// `EventSourceMappingConfiguration`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Shown {
    #[serde(rename = "UUID")]
    id: String,
    event_source_mapping_arn: String,
    event_source_arn: String,
    function_arn: String,
    batch_size: usize,
    maximum_batching_window_in_seconds: u64,
    function_response_types: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scaling_config: Option<Scaling>,
    last_modified: f64,
    last_processing_result: String,
    state: &'static str,
    state_transition_reason: &'static str,
}

impl Shown {
    fn of(call: &Call, id: &str, source: Source) -> Self {
        let place = &call.place;
        Self {
            id: id.to_owned(),
            event_source_mapping_arn: format!(
                "arn:{}:lambda:{}:{}:event-source-mapping:{id}",
                place.partition, place.region, place.account
            ),
            event_source_arn: source.queue_arn,
            function_arn: source.function_arn,
            batch_size: source.batch,
            maximum_batching_window_in_seconds: source.window,
            function_response_types: source.reports.then_some(REPORTS).into_iter().collect(),
            scaling_config: source
                .concurrency
                .map(|most| Scaling { maximum_concurrency: Some(most) }),
            last_modified: source.changed,
            last_processing_result: call.app.sources.last_result(id),
            state: if source.enabled { "Enabled" } else { "Disabled" },
            state_transition_reason: "USER_INITIATED",
        }
    }
}

impl AskedChange {
    /// The source as it is to be, of what it is.
    fn over(&self, before: Source) -> Result<Source, Fault> {
        for (member, why) in REFUSED {
            if self.others.get(member).is_some_and(|said| !is_empty(said)) {
                return Err(Fault::invalid_parameter_value(format!(
                    "{member} is not supported by Lambswool: {why}"
                )));
            }
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let concurrency = match &self.scaling_config {
            Some(scaling) => scaling.maximum_concurrency,
            None => before.concurrency,
        };
        let source = Source {
            enabled: self.enabled.unwrap_or(before.enabled),
            batch: self.batch_size.unwrap_or(before.batch),
            window: self.maximum_batching_window_in_seconds.unwrap_or(before.window),
            reports: self
                .function_response_types
                .as_ref()
                .map_or(before.reports, |types| types.iter().any(|one| one == REPORTS)),
            concurrency,
            changed: (since.as_secs_f64() * 1000.0).round() / 1000.0,
            ..before
        };
        let refused = |why: &str| Err(Fault::invalid_parameter_value(why));
        if source.queue.ends_with(FIFO) && source.window > 0 {
            return refused("Batching window is not supported for FIFO queues");
        }
        if source.queue.ends_with(FIFO) && source.batch > BATCH {
            return refused("Maximum batch size of a FIFO queue is 10");
        }
        if source.batch > BATCH && source.window == 0 {
            return refused(
                "Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than 10",
            );
        }
        Ok(source)
    }
}

fn is_empty(said: &Value) -> bool {
    match said {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.values().all(is_empty),
        _ => false,
    }
}

/// `CreateEventSourceMapping`.
pub(super) async fn create(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedChange = call.read()?;
    let named = call.named(asked.function_name.as_deref().unwrap_or_default(), None)?;
    if !call.has::<to::Configure>(&named)? {
        return Err(call.not_found(&named));
    }
    check_tenant(&call, &named)?;
    let queue = queue(&call, asked.event_source_arn.as_deref())?;
    let qualifier = named.qualifier.as_ref().map(ToString::to_string).unwrap_or_default();
    let source = Source { enabled: true, batch: BATCH, qualifier, ..queue };
    let source = of_function(&call, &named, asked.over(source)?);
    let there = call.all_attached::<Source>(&named, SOURCE)?;
    let is_same = |(_, one): &&(String, Source)| {
        one.queue_arn == source.queue_arn && one.qualifier == source.qualifier
    };
    if let Some((id, _)) = there.iter().find(is_same) {
        return Err(Fault::resource_conflict(format!(
            "An event source mapping with SQS arn (\" {} \") and function (\" {} \") already exists. Please update or delete the existing mapping with UUID {id}",
            source.queue_arn, named.name
        )));
    }
    let id = random_id().map_err(|_| ApiError::internal("the kernel gave no random bytes"))?;
    keep(&call, &named, id.as_str(), source).await
}

/// `UpdateEventSourceMapping`: what is not said stays.
pub(super) async fn update(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedChange = call.read()?;
    let (id, named, before) = found::<to::Configure>(&call, asked.id.as_deref())?;
    if let Some(function) = &asked.function_name {
        let other = call.named(function, None)?;
        if other.name != named.name {
            return Err(Fault::invalid_parameter_value(
                "FunctionName: an event source mapping stays with its function here; delete it, and create one of the other function",
            ));
        }
        if !call.has::<to::Configure>(&other)? {
            return Err(call.not_found(&other));
        }
        let qualifier = other.qualifier.as_ref().map(ToString::to_string).unwrap_or_default();
        let source = of_function(&call, &other, asked.over(Source { qualifier, ..before })?);
        return keep(&call, &other, &id, source).await;
    }
    keep(&call, &named, &id, asked.over(before)?).await
}

#[derive(Debug, Deserialize)]
struct Asked {
    #[serde(rename = "UUID")]
    id: String,
}

/// `GetEventSourceMapping`.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let (id, _, source) = found::<to::ShowFunction>(&call, Some(&asked.id))?;
    Answer::json(&Shown::of(&call, &id, source))
}

/// `DeleteEventSourceMapping`: messages that the function has now are still deleted if it answers.
pub(super) async fn delete(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let (id, named, source) = found::<to::Configure>(&call, Some(&asked.id))?;
    let change = |kept: &mut Source| {
        *kept = Source::default();
        Ok(())
    };
    let shown = Shown { state: "Deleting", ..Shown::of(&call, &id, source) };
    call.change(&named, SOURCE, &id, change).await?;
    Answer::json(&shown)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedList {
    event_source_arn: Option<String>,
    function_name: Option<String>,
    marker: Option<String>,
    max_items: Option<usize>,
}

/// `ListEventSourceMappings`: of a function, or of all that the caller may touch.
pub(super) async fn list(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedList = call.read()?;
    let mut all = Vec::new();
    if let Some(function) = &asked.function_name {
        let named = call.named(function, None)?;
        if !call.has::<to::ShowFunction>(&named)? {
            return Err(call.not_found(&named));
        }
        all.extend(call.all_attached::<Source>(&named, SOURCE)?);
    } else {
        let permit = call.permit_all::<to::ListFunctions>()?;
        for function in call.app.functions.list(&permit, false) {
            let named = call.named(function.name(), None)?;
            all.extend(call.all_attached::<Source>(&named, SOURCE)?);
        }
    }
    if let Some(arn) = &asked.event_source_arn {
        all.retain(|(_, source)| source.queue_arn == *arn);
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    let key = |(id, _): &(String, Source)| id.clone();
    let (some, next_marker) = page(all, key, asked.marker.as_deref(), asked.max_items)?;
    let shown = some.into_iter().map(|(id, source)| Shown::of(&call, &id, source));
    let shown: Vec<Shown> = shown.collect();
    Answer::part("EventSourceMappings", &shown, next_marker)
}

/// A source by its name, and its function.
fn found<P>(call: &Call, id: Option<&str>) -> Result<(String, Named, Source), Fault>
where
    P: platform::access::Purpose<Subject = function::WholeName>,
{
    let missing = || Fault::resource_not_found("The resource you requested does not exist.");
    let id = id.unwrap_or_default();
    let permit = call.permit_all::<to::ListFunctions>()?;
    let name = call.app.sources.function_of(&permit, id).ok_or_else(missing)?;
    let named = call.named(name.as_str(), None)?;
    call.permit::<P>(&named.name)?;
    let source = call.attached::<Source>(&named, SOURCE, id)?.ok_or_else(missing)?;
    Ok((id.to_owned(), named, source))
}

async fn keep(call: &Call, named: &Named, id: &str, source: Source) -> Result<Answer, Fault> {
    call.about(&source.queue_arn);
    let change = move |kept: &mut Source| {
        *kept = source;
        Ok(())
    };
    let kept = call.change(named, SOURCE, id, change).await?;
    Answer::json(&Shown::of(call, id, kept))
}

fn of_function(call: &Call, named: &Named, source: Source) -> Source {
    let qualifier = named.qualifier.as_ref().filter(|it| **it != Qualifier::Latest);
    let qualifier = qualifier.map(ToString::to_string);
    Source { function_arn: call.arn(named.name.as_str(), qualifier.as_deref()), ..source }
}

fn check_tenant(call: &Call, named: &Named) -> Result<(), Fault> {
    if Sources::serves(&call.permit::<to::Configure>(&named.name)?) {
        return Ok(());
    }
    Err(Fault::invalid_parameter_value(
        "Queues are asked with the worker's own credentials, which is for the default tenant alone: have the source call Invoke",
    ))
}

/// The queue that an ARN names: `arn:aws:sqs:REGION:ACCOUNT:NAME`.
fn queue(call: &Call, arn: Option<&str>) -> Result<Source, Fault> {
    let arn = arn.ok_or_else(|| Fault::invalid_parameter_value("EventSourceArn is missing."))?;
    let parts: Vec<&str> = arn.split(':').collect();
    let ["arn", _, service, region, account, name] = parts[..] else {
        return Err(Fault::invalid_parameter_value("Unrecognized event source."));
    };
    if service != "sqs" {
        return Err(Fault::invalid_parameter_value(format!(
            "Unrecognized event source. An event source of {service} is not supported by Lambswool: {ONLY_QUEUES}"
        )));
    }
    if region != call.place.region {
        return Err(Fault::invalid_parameter_value(format!(
            "The event source is in the region {region}, and this worker is in {}: they must be in the same one",
            call.place.region
        )));
    }
    Ok(Source {
        queue_arn: arn.to_owned(),
        account: account.to_owned(),
        region: region.to_owned(),
        queue: name.to_owned(),
        ..Source::default()
    })
}
