//! `POST /v1/functions/{name}/rollback`: making an earlier version current again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use platform::access::to;
use platform::deploy::progress::Silent;
use platform::deploy::{Earlier, Order, RollBackError};
use sandbox::chain;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::deploys::deploy;
use super::functions::FunctionDetail;
use super::releases::{REQUEST_BYTES, not_taken};
use crate::App;
use crate::error::{ApiError, ErrorBody};
use crate::request::body::Small;
use crate::request::{Act, Permitted};

/// Which version is to be current again.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBackRequest {
    /// A published version's number, or at least the first eight digits of a version's id; without it the version that was first deployed
    /// before the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Make an earlier version of a function current again. Published versions and aliases stay as they are.
#[utoipa::path(post, path = "/v1/functions/{name}/rollback", tag = "versions",
    params(("name" = String, Path, description = "the function's name")),
    request_body = Option<RollBackRequest>,
    responses(
        (status = 200, description = "the function at that version", body = FunctionDetail),
        (status = 400, description = "the request is not valid", body = ErrorBody),
        (status = 404, description = "no such function or version", body = ErrorBody),
        (status = 409, description = "several versions begin like that", body = ErrorBody),
        (status = 503, description = "the machine cannot make it", body = ErrorBody),
    ))]
pub(super) async fn roll_back(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::RollBack>,
    Extension(act): Extension<Arc<Act>>,
    body: Small<REQUEST_BYTES>,
) -> Result<Json<FunctionDetail>, ApiError> {
    let request: Option<RollBackRequest> = body.read().map_err(not_taken)?;
    let wanted = request.unwrap_or_default().version.map_or(Earlier::Previous, Earlier::Named);
    let version = app.deployer.earlier(&permit, wanted).await?;
    deploy(app, Order::roll_back(&permit, version), Silent, act).await.map(Json)
}

impl From<RollBackError> for ApiError {
    fn from(error: RollBackError) -> Self {
        let message = chain(&error);
        match error {
            RollBackError::Unknown(name) => Self::unknown_function(name.name()),
            RollBackError::NoEarlier(_)
            | RollBackError::NoSuchVersion { .. }
            | RollBackError::NoFiles(_) => {
                Self::new(StatusCode::NOT_FOUND, "unknown-version", message)
            }
            RollBackError::Ambiguous { .. } => Self::new(StatusCode::CONFLICT, "conflict", message),
            RollBackError::Store(_) | RollBackError::BrokeOff => Self::internal(message),
        }
    }
}
