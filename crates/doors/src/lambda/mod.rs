//! AWS Lambda's API, so that its clients work unchanged: the same routes, shapes, texts and errors, over the same use cases.
//!
//! ```text
//!   /2015-03-31/… ─► guard ─► route (lambda_api) ─► operations (which action?) ─► entrance (who asks?)
//!                                                                                        │
//!                 platform ◄── one file for each group ◄── input (checked by the model) ◄┘ body
//! ```
//! `lambda_api` knows the service's model and nothing of the worker. `docs/user/lambda.md` lists each operation, and what
//! differs.

mod account;
mod aliases;
mod arrival;
mod attached;
mod call;
mod code;
mod concurrency;
mod configuration;
mod constants;
mod deploy;
mod environment;
mod event_invoke;
mod fault;
mod functions;
mod invoke;
mod layer_policy;
mod layers;
mod operations;
mod paging;
mod policy;
mod provisioned;
mod sources;
mod tags;
mod urls;
mod versions;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use lambda_api::arn::Place;

use crate::error::ApiError;
use crate::native::random_id;
use crate::request::entrance::Entrance;
use crate::request::reply;
use crate::{App, Budgets, Listener};

/// Whether an operation of the service is answered here.
#[must_use]
pub fn supports(operation: &str) -> bool {
    operations::find(operation).is_some()
}

/// Names the request, and the call that it makes.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");

/// What the API works with, behind one listener.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    entrance: Entrance,
    budgets: Budgets,
    place: Arc<Place>,
}

impl Api {
    pub(crate) fn new(app: &Arc<App>, listener: Listener) -> Self {
        let entrance = Entrance { app: Arc::clone(app), listener };
        let place = Arc::new(app.settings.place.clone());
        Self { entrance, budgets: app.budgets(listener).clone(), place }
    }
}

/// Answers what is for this API, and passes everything else on.
pub(crate) async fn answer_or_pass_on(
    State(api): State<Api>,
    request: Request,
    next: Next,
) -> Response {
    if !lambda_api::is_api_path(request.uri().path()) {
        return next.run(request).await;
    }
    // A reply to a HEAD has no body, and the service has no such routes.
    let is_head = request.method() == Method::HEAD;
    let (id, mut response) = match random_id() {
        Ok(id) => {
            let answered = arrival::answer(&api, request, &id).await;
            (Some(id), answered.unwrap_or_else(fault::respond))
        }
        Err(_) => (None, refuse(ApiError::internal("the kernel gave no random bytes"))),
    };
    if let Some(id) = id.as_ref().and_then(|id| HeaderValue::from_str(id.as_str()).ok()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    if is_head {
        *response.body_mut() = Body::empty();
    }
    response
}

/// A refusal of ours, in the service's form.
fn refuse(error: ApiError) -> Response {
    fault::respond(error.into())
}

/// The reply, counted among what its tenant has in memory.
async fn counted(api: &Api, tenant: &str, reply: Response) -> Response {
    reply::held(&api.budgets, tenant, reply, refuse).await
}
