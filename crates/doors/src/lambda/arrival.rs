//! A request on its way to its operation: who asks comes before anything of its body is read.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use lambda_api::arn::FunctionRef;
use lambda_api::{Fault, Route};
use platform::access::{Action, Requester, Secret};
use sandbox::InvocationId;
use serde_json::{Map, Value};

use super::call::Call;
use super::operations::{self, Row};
use super::{Api, counted};
use crate::Listener;
use crate::error::ApiError;
use crate::request::entrance::{Asked, Shown, bearer};
use crate::request::{Act, body, guard};

/// Where clients put the token of temporary credentials (AWS Signature Version 4).
const SECURITY_TOKEN: &str = "x-amz-security-token";

/// Names the trace that a request is part of (X-Ray).
const TRACE_ID: &str = "x-amzn-trace-id";

/// The largest body of an operation that takes no code.
const SMALL_BODY: u64 = 256 << 10;

/// The largest body of an operation that takes code: the service's own limit.
const CODE_BODY: u64 = 70_167_211;

/// Answers a request; the id names it, and the call that it makes.
pub(super) async fn answer(
    api: &Api,
    request: Request,
    id: &InvocationId,
) -> Result<Response, Fault> {
    let admitted = match admit(api, &request) {
        Ok(admitted) => admitted,
        Err(fault) => {
            body::discard(request).await;
            return Err(fault);
        }
    };
    let Admitted { route, row, requester, act } = admitted;
    let tenant = requester.tenant.clone();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let (parts, incoming) = body::arriving(request).into_parts();
    let allowed = body::Allowed {
        bytes: bytes_of(api, row),
        setting: (row.takes == operations::Takes::Event).then_some("run_body"),
        patience: api.entrance.app.settings.client_timeout.0,
    };
    let held = api.budgets.run.hold(tenant.as_str());
    let collected = body::collect(&parts.headers, incoming, allowed, Some(held)).await;
    let trace_id = trace_id(&parts.headers, id);
    let ran = async {
        let (payload, held) = collected.map_err(|refused| too_large(row, refused))?;
        let (members, payload) = read(row, &route, query, parts.headers, payload).await?;
        let call = Call {
            app: Arc::clone(&api.entrance.app),
            place: Arc::clone(&api.place),
            requester,
            members,
            payload,
            held,
            budgets: api.budgets.clone(),
            id: id.clone(),
            trace_id: trace_id.clone(),
            act: act.clone(),
        };
        (row.run)(call).await
    };
    let ran = ran.await;
    if let Some(act) = act {
        act.came_to(ran.as_ref().err());
    }
    let answer = ran?.with(TRACE_ID, &trace_id);
    Ok(counted(api, tenant.as_str(), answer.into_response(&route)).await)
}

/// The members of the input, and the body. A body with code is read where that may take its time.
async fn read(
    row: &Row,
    route: &Route,
    query: String,
    headers: HeaderMap,
    payload: Bytes,
) -> Result<(Map<String, Value>, Bytes), Fault> {
    if row.takes != operations::Takes::Code {
        let members = members(route, &query, &headers, &payload)?;
        return Ok((members, payload));
    }
    let route = route.clone();
    let read = tokio::task::spawn_blocking(move || {
        members(&route, &query, &headers, &payload).map(|members| (members, payload))
    });
    read.await.map_err(|_| ApiError::internal("the request broke off"))?
}

fn members(
    route: &Route,
    query: &str,
    headers: &HeaderMap,
    payload: &[u8],
) -> Result<Map<String, Value>, Fault> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    route.input(query, header, payload).map(|input| input.members)
}

/// The trace that the request is part of, as its client says, or a new one, which nothing samples.
fn trace_id(headers: &HeaderMap, id: &InvocationId) -> String {
    let said = headers.get(TRACE_ID).and_then(|said| said.to_str().ok());
    said.map(str::to_owned).unwrap_or_else(|| {
        let digits: String = id.as_str().chars().filter(char::is_ascii_hexdigit).take(24).collect();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        format!("Root=1-{seconds:08x}-{digits:0<24};Sampled=0")
    })
}

/// A request whose caller may ask for its operation.
struct Admitted {
    route: Route,
    row: &'static Row,
    requester: Requester,
    act: Option<Arc<Act>>,
}

fn admit(api: &Api, request: &Request) -> Result<Admitted, Fault> {
    if api.entrance.listener == Listener::Loopback {
        guard::check(request.headers())?;
    }
    let (method, uri) = (request.method().as_str(), request.uri());
    let route = lambda_api::route(method, uri.path(), uri.query().unwrap_or_default())?;
    let row = operations::find(route.operation.name);
    let action = row.map_or(operations::UNSUPPORTED, |row| row.action);
    let shown = shown(request.headers());
    let requester = api.entrance.requester(request, action.scope(), shown)?;
    let read = |text: &str| Some(FunctionRef::read(text, None, &api.place).ok()?.name);
    let function = route.parameter("FunctionName").and_then(read);
    let act = begun(api, request, &requester, action, &route, function.clone());
    let admitted = requester.clone().admit(action, function).map_err(ApiError::from);
    // Not before: a caller that may not ask learns nothing of what could be asked.
    let row = admitted
        .map_err(Fault::from)
        .and_then(|_| row.ok_or_else(|| Fault::unsupported(route.operation)));
    let row = row.inspect_err(|fault| {
        if let Some(act) = &act {
            act.came_to(Some(fault));
        }
    })?;
    api.entrance.welcome(request, &requester);
    Ok(Admitted { route, row, requester, act })
}

/// The audit line of what is asked for, if that changes something or is another tenant's.
fn begun(
    api: &Api,
    request: &Request,
    requester: &Requester,
    action: Action,
    route: &Route,
    function: Option<String>,
) -> Option<Arc<Act>> {
    let action = match action.audited() {
        Some(action) => action.to_owned(),
        None => requester.stranger_to().map(|_| route.operation.name.to_owned())?,
    };
    Some(api.entrance.begin(request, requester, Asked { action, function, subject: None }))
}

/// The token that a request shows: of `Authorization: Bearer`, or where clients that sign put a session's. What they sign
/// with is not looked at: no secret of theirs is kept here to check it by.
fn shown(headers: &HeaderMap) -> Shown {
    let is_bearer = |text: &HeaderValue| {
        text.as_bytes().get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"))
    };
    match bearer(headers) {
        // One of several may be meant: which?
        Shown::OtherScheme if headers.get_all(AUTHORIZATION).iter().any(is_bearer) => {
            return Shown::Unreadable;
        }
        Shown::OtherScheme | Shown::Nothing => {}
        shown => return shown,
    }
    let all = headers.get_all(SECURITY_TOKEN).iter();
    let ours: Vec<&HeaderValue> =
        all.filter(|token| token.as_bytes().starts_with(b"wool_")).collect();
    match ours[..] {
        // A session of the service itself is no token, and means nothing here.
        [] => Shown::Nothing,
        [token] => {
            let secret = token.to_str().ok().and_then(Secret::read);
            secret.map_or(Shown::Unreadable, Shown::Token)
        }
        _ => Shown::Unreadable,
    }
}

fn bytes_of(api: &Api, row: &Row) -> u64 {
    match row.takes {
        operations::Takes::Event => api.entrance.app.settings.run_body.0,
        operations::Takes::Code => CODE_BODY,
        operations::Takes::Little => SMALL_BODY,
    }
}

/// The service has two errors for a body that is too large.
fn too_large(row: &Row, refused: ApiError) -> Fault {
    let message = refused.detail().message.clone();
    match (&*refused.detail().r#type, row.takes) {
        ("body-too-large", operations::Takes::Event) => Fault::request_too_large(message),
        _ => refused.into(),
    }
}
