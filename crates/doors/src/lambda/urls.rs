//! Function URLs: configured and shown. Nothing is served at them.

use std::time::SystemTime;

use axum::http::Uri;
use function::LATEST;
use lambda_api::Fault;
use platform::access::to;
use platform::logs::stamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::call::{Answer, Call, Named};
use super::paging::{AskedPage, page};
use crate::error::ApiError;
use crate::native::random_id;

/// What URLs are kept as, beside a function: under its aliases' names, and under `$LATEST`.
const KIND: &str = "url";

/// The URL of a function or of its alias, as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Url {
    /// The first label of its host: 32 letters and digits, drawn once.
    id: String,
    auth_type: String,
    cors: Map<String, Value>,
    /// None: the service's default.
    invoke_mode: Option<String>,
    /// When it was made, RFC 3339.
    created: String,
    modified: String,
}

/// `FunctionUrlConfig`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Shown {
    function_url: String,
    function_arn: String,
    auth_type: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    cors: Map<String, Value>,
    creation_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_modified_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    invoke_mode: Option<String>,
}

impl Shown {
    /// `key` is what the URL is kept under.
    fn of(call: &Call, named: &Named, key: &str, url: Url) -> Self {
        let alias = Some(key).filter(|key| *key != LATEST);
        Self {
            function_url: address(call, &url.id),
            function_arn: call.arn(named.name.as_str(), alias),
            auth_type: url.auth_type,
            cors: url.cors,
            creation_time: url.created,
            last_modified_time: Some(url.modified),
            invoke_mode: Some(url.invoke_mode.unwrap_or_else(|| "BUFFERED".to_owned())),
        }
    }
}

/// Where the URL with this id is: at the port of this worker, as it listens now.
fn address(call: &Call, id: &str) -> String {
    let own: Uri = call.app.url.parse().unwrap_or_default();
    let (scheme, region) = (own.scheme_str().unwrap_or("http"), &call.place.region);
    let port = own.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{id}.lambda-url.{region}.localhost{port}/")
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    function_name: String,
    qualifier: Option<String>,
    auth_type: Option<String>,
    cors: Option<Map<String, Value>>,
    invoke_mode: Option<String>,
}

impl Asked {
    fn named(&self, call: &Call) -> Result<Named, Fault> {
        call.named(&self.function_name, self.qualifier.as_deref())
    }
}

/// `CreateFunctionUrlConfig`.
pub(super) async fn create(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    if !call.has::<to::Configure>(&named)? {
        return Err(no_function());
    }
    let id = random_id().map_err(|_| ApiError::internal("the kernel gave no random bytes"))?;
    let invoke_mode = asked.invoke_mode.clone();
    let arn = call.arn(named.name.as_str(), asked.qualifier.as_deref());
    let change = move |url: &mut Url| {
        if *url != Url::default() {
            return Err(Fault::resource_conflict(format!(
                "Failed to create function url config for [functionArn = {arn}]. Error message:  FunctionUrlConfig exists for this Lambda function"
            )));
        }
        let now = stamp(SystemTime::now());
        *url = Url {
            id: id.as_str().replace('-', ""),
            auth_type: asked.auth_type.unwrap_or_default(),
            cors: asked.cors.unwrap_or_default(),
            invoke_mode: asked.invoke_mode,
            created: now.clone(),
            modified: now,
        };
        Ok(())
    };
    let key = named.version().to_string();
    let url = call.change(&named, KIND, &key, change).await?;
    let shown = Shown::of(&call, &named, &key, url);
    // The answer to a creation has neither of what it did not say.
    Answer::json(&Shown { last_modified_time: None, invoke_mode, ..shown })
}

/// `UpdateFunctionUrlConfig`: what is not said stays. `Cors` is replaced as a whole.
pub(super) async fn update(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    if !call.has::<to::Configure>(&named)? {
        return Err(no_function());
    }
    let change = move |url: &mut Url| {
        if *url == Url::default() {
            return Err(no_url());
        }
        let before = std::mem::take(url);
        *url = Url {
            auth_type: asked.auth_type.unwrap_or(before.auth_type),
            cors: asked.cors.unwrap_or(before.cors),
            invoke_mode: asked.invoke_mode.or(before.invoke_mode),
            modified: stamp(SystemTime::now()),
            ..before
        };
        Ok(())
    };
    let key = named.version().to_string();
    let url = call.change(&named, KIND, &key, change).await?;
    Answer::json(&Shown::of(&call, &named, &key, url))
}

/// `GetFunctionUrlConfig`.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    if !call.has::<to::ShowFunction>(&named)? {
        return Err(no_url());
    }
    let key = named.version().to_string();
    let url: Url = call.attached(&named, KIND, &key)?.ok_or_else(no_url)?;
    Answer::json(&Shown::of(&call, &named, &key, url))
}

/// `DeleteFunctionUrlConfig`.
pub(super) async fn delete(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = asked.named(&call)?;
    if !call.has::<to::Configure>(&named)? {
        return Err(no_url());
    }
    let change = |url: &mut Url| match std::mem::take(url) {
        before if before == Url::default() => Err(no_url()),
        _ => Ok(()),
    };
    call.change(&named, KIND, &named.version().to_string(), change).await?;
    Ok(Answer::empty())
}

/// `ListFunctionUrlConfigs`.
pub(super) async fn list(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedPage = call.read()?;
    let named = call.named(&asked.function_name, None)?;
    if !call.has::<to::ShowFunction>(&named)? {
        return Err(no_function());
    }
    let all = call.all_attached::<Url>(&named, KIND)?;
    let key = |(key, _): &(String, Url)| key.clone();
    let (some, next_marker) = page(all, key, asked.marker.as_deref(), asked.max_items)?;
    let shown = some.into_iter().map(|(key, url)| Shown::of(&call, &named, &key, url));
    let shown: Vec<Shown> = shown.collect();
    Answer::part("FunctionUrlConfigs", &shown, next_marker)
}

fn no_function() -> Fault {
    Fault::resource_not_found("Function does not exist")
}

fn no_url() -> Fault {
    Fault::resource_not_found("The resource you requested does not exist.")
}
