//! `PUT /v1/functions/{name}`: deploying.

use std::convert::Infallible;
use std::fs::File;
use std::io::Seek as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;
use utoipa::IntoParams;

use super::Query;
use super::functions::{FunctionDetail, detail};
use crate::App;
use crate::error::{ApiError, ErrorBody, ErrorDetail};
use crate::native::isolation::{Instead, Isolation, Reset};
use crate::request::{Act, Budgets, Permitted, body};
use function::{FunctionName, WholeName};
use platform::access::to;
use platform::deploy::progress::{Event, Progress, Sender};
use platform::deploy::workshop::{Bundle, Files, Packing, SettingsFrom};
use platform::deploy::{DeployError, Order};
use platform::functions::Function;
use platform::run_name;

const NDJSON: &str = "application/x-ndjson";

/// The choices of a deploy.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PutQuery {
    /// Leave it out of lists and keep it in memory alone: it is gone when the worker ends, and when the tenant uses 32 others
    /// such. One that was deployed without this stays as it is.
    #[serde(default)]
    hidden: bool,
    /// Let no later call use an instance from before, even if the same version is deployed again.
    #[serde(default)]
    fresh: bool,
    /// The module's name for a single Python source; the function's name by default.
    module: Option<String>,
    /// What to run it in, in place of its own setting: `container` or `microvm`.
    #[param(inline)]
    isolation: Option<Isolation>,
    /// What a call finds of the one before, in place of its own setting: `never` puts nothing back, `always` everything, in
    /// micro-VMs only.
    #[param(inline)]
    reset: Option<Reset>,
}

impl PutQuery {
    fn instead(&self) -> Instead {
        Instead { isolation: self.isolation, reset: self.reset }
    }
}

/// Deploy a function: a single Python source, or a folder as a ZIP or tar archive.
///
/// With `Accept: application/x-ndjson` the reply is a line for each step (`{"progress": …}`, `{"line": …}` of the
/// installer, `{"bytes": [done, total]}`), and at last `{"deployed": …}` or `{"error": …}`; its status is then 200.
#[utoipa::path(put, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "the function's name"), PutQuery),
    request_body(description = "the source or the archive", content(
        (String = "text/x-python"), (Vec<u8> = "application/zip"), (Vec<u8> = "application/x-tar"), (Vec<u8> = "application/gzip"))),
    responses(
        (status = 201, description = "deployed, and current", body = FunctionDetail),
        (status = 400, description = "the name or the query is not valid", body = ErrorBody),
        (status = 408, description = "the bundle arrives too slowly", body = ErrorBody),
        (status = 413, description = "the bundle is too large", body = ErrorBody),
        (status = 415, description = "neither Python, ZIP nor tar", body = ErrorBody),
        (status = 422, description = "the function cannot run as it is", body = ErrorBody),
        (status = 429, description = "too many bundles at once; see Retry-After", body = ErrorBody),
        (status = 503, description = "the machine cannot make it", body = ErrorBody),
    ))]
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::Deploy>,
    Extension(act): Extension<Arc<Act>>,
    Extension(budgets): Extension<Budgets>,
    Query(query): Query<PutQuery>,
    request: Request,
) -> Result<Response, ApiError> {
    let (Parts { headers, .. }, body) = request.into_parts();
    let name = permit.function();
    let packing = packing(&headers, query.module.as_deref().unwrap_or(name.name()))?;
    let allowed = body::Allowed {
        bytes: app.settings.deploy_body.0,
        setting: Some("deploy_body"),
        patience: app.settings.client_timeout.0,
    };
    let (held, dir) = (budgets.deploy.hold(name.tenant()), &app.spool);
    let (mut file, held) = body::spool(&headers, body, allowed, held, dir).await?;
    if run_name::is_one(name.name()) {
        file = check_name(name, &query, &packing, file).await?;
    }
    let settings = SettingsFrom::Files(query.instead().into());
    let bundle = Bundle { files: Files::Sent { packing, file }, settings };
    let (events, told) = unbounded_channel();
    let (app, progress) = (Arc::clone(&app), Sender::new(events));
    let PutQuery { hidden, fresh, .. } = query;
    let order = Order::new(&permit, bundle, hidden, fresh);
    let deploying = deploy(app, order, progress, act);
    let work = async move {
        let deployed = deploying.await;
        drop(held);
        deployed
    };
    if headers.get(header::ACCEPT).is_none_or(|accept| accept != NDJSON) {
        // No client listens: without this, events would pile up until the end.
        drop(told);
        return Ok((StatusCode::CREATED, Json(work.await?)).into_response());
    }
    Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(lines(told, work))).into_response())
}

/// Deploys, and notes in the audit log what came of it.
pub(super) async fn deploy(
    app: Arc<App>,
    order: Order,
    progress: impl Progress + Send + 'static,
    act: Arc<Act>,
) -> Result<FunctionDetail, ApiError> {
    act.begun();
    let ended = move |deployed: &Result<Arc<Function>, DeployError>| match deployed {
        Ok(function) => {
            act.made(&function.current().id.0);
            act.ended("ok");
        }
        Err(error) => act.ended(&ApiError::from(error).detail().r#type),
    };
    let function = app.deployer.deploy(order, Arc::new(progress), ended).await?;
    detail(&app, function).await
}

/// The last line of a streamed deploy.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Last {
    /// The function as it is deployed.
    Deployed(Box<FunctionDetail>),
    /// The reason why nothing was deployed.
    Error(ErrorDetail),
}

/// Events as they come, and then the outcome.
fn lines(
    told: UnboundedReceiver<Event>,
    work: impl Future<Output = Result<FunctionDetail, ApiError>> + Send + 'static,
) -> impl stream::Stream<Item = Result<Bytes, Infallible>> + Send {
    // Started now, not when the client reads: the stream only listens. It ends the events by dropping its sender. When
    // the client goes, so does it.
    let work = AbortOnDropHandle::new(tokio::spawn(work));
    let events =
        stream::unfold(told, async |mut told| told.recv().await.map(|event| (line(&event), told)));
    let last = stream::once(async {
        line(&match work.await {
            Ok(Ok(deployed)) => Last::Deployed(Box::new(deployed)),
            Ok(Err(error)) => Last::Error(error.detail().clone()),
            Err(_) => Last::Error(
                ApiError::internal("the deploy broke off: see the worker's log").detail().clone(),
            ),
        })
    });
    events.chain(last).map(Ok)
}

fn line(value: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    Bytes::from(text)
}

/// Lets a bundle pass under a name of its own contents; returns the file at its beginning.
async fn check_name(
    name: &WholeName,
    query: &PutQuery,
    packing: &Packing,
    mut file: File,
) -> Result<File, ApiError> {
    let instead = query.instead();
    let module = query.module.clone().unwrap_or_else(|| name.name().to_owned());
    let kind = packing.content_type();
    let work = tokio::task::spawn_blocking(move || {
        let named = run_name::name(&instead.query(), &module, kind, &mut file)?;
        file.rewind()?;
        Ok::<_, std::io::Error>((named, file))
    });
    let broken = || ApiError::internal("the upload cannot be read again");
    let (named, file) = work.await.map_err(|_| broken())?.map_err(|_| broken())?;
    if named == name.name() {
        return Ok(file);
    }
    let message = format!(
        "{} is a name that `wool run` makes of what it deploys, and this is something else: choose another name",
        name.name()
    );
    Err(ApiError::new(StatusCode::BAD_REQUEST, "bad-name", message))
}

fn packing(headers: &HeaderMap, module: &str) -> Result<Packing, ApiError> {
    let said =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/x-python" => {
            let module: FunctionName = module.parse()?;
            Ok(Packing::Source(module.to_string()))
        }
        "application/zip" | "application/x-zip-compressed" => Ok(Packing::Zip),
        "application/x-tar" => Ok(Packing::Tar),
        "application/gzip" | "application/x-gzip" => Ok(Packing::TarGz),
        _ => {
            let message = format!(
                "cannot deploy content of type {said:?}: send text/x-python, application/zip, application/x-tar or application/gzip (a gzipped tar) as Content-Type"
            );
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-type", message))
        }
    }
}
