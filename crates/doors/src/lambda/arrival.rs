//! A request on its way to its operation: who asks comes before anything of its body is read.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use lambda_api::arn::FunctionRef;
use lambda_api::{Fault, Route};
use platform::access::{Requester, Secret};
use sandbox::InvocationId;

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
const SMALL_BODY: u64 = 1 << 20;

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
        setting: (row.name == operations::INVOKE).then_some("run_body"),
        patience: api.entrance.app.settings.client_timeout.0,
    };
    let held = api.budgets.run.hold(tenant.as_str());
    let collected = body::collect(&parts.headers, incoming, allowed, Some(held)).await;
    let ran = async {
        let (payload, held) = collected.map_err(|refused| too_large(row, refused))?;
        let header = |name: &str| parts.headers.get(name)?.to_str().ok();
        let members = route.input(&query, header, &payload)?.members;
        let call = Call {
            app: Arc::clone(&api.entrance.app),
            place: Arc::clone(&api.place),
            requester,
            members,
            payload,
            held,
            budgets: api.budgets.clone(),
            id: id.clone(),
            trace_id: header(TRACE_ID).map(str::to_owned),
            act: act.clone(),
        };
        (row.run)(call).await
    };
    let ran = ran.await;
    if let Some(act) = act {
        act.came_to(ran.as_ref().err());
    }
    Ok(counted(api, tenant.as_str(), ran?.into_response(&route)).await)
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
    // Of which function, its permit will ask.
    requester.clone().admit(action, None).map_err(ApiError::from)?;
    // Not before: a caller that may not ask learns nothing of what could be asked.
    let Some(row) = row else { return Err(Fault::unsupported(route.operation)) };
    api.entrance.welcome(request, &requester);
    let act = row.action.audited().map(|action| {
        let read = |text: &str| Some(FunctionRef::read(text, None, &api.place).ok()?.name);
        let function = route.parameter("FunctionName").and_then(read);
        let asked = Asked { action: action.to_owned(), function, subject: None };
        api.entrance.begin(request, &requester, asked)
    });
    Ok(Admitted { route, row, requester, act })
}

/// The token that a request shows: of `Authorization: Bearer`, or where clients that sign put a session's. What they sign
/// with is not looked at: no secret of theirs is kept here to check it by.
fn shown(headers: &HeaderMap) -> Shown {
    match bearer(headers) {
        Shown::OtherScheme | Shown::Nothing => {}
        shown => return shown,
    }
    let mut all = headers.get_all(SECURITY_TOKEN).iter();
    let (first, second) = (all.next(), all.next());
    let Some(token) = first.and_then(|token| token.to_str().ok()) else { return Shown::Nothing };
    match Secret::read(token) {
        Some(secret) if second.is_none() => Shown::Token(secret),
        // A session of the service itself is no token, and means nothing here.
        None if !token.starts_with("wool_") => Shown::Nothing,
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
