//! `/v1/audit`: what was changed, and by whom.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Query, lines};
use crate::App;
use crate::error::ApiError;
use crate::request::Permitted;
use platform::access::to;
use platform::audit::Action;

/// Selects actions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// How many to go back; 100 by default, at most 100 000.
    #[param(maximum = 100_000)]
    #[serde(default, deserialize_with = "lines::lines")]
    lines: Option<u32>,
}

/// Control actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ActionList {
    /// The oldest first.
    pub actions: Vec<Action>,
}

/// Read the last control actions.
#[utoipa::path(get, path = "/v1/audit", tag = "access", params(AuditQuery),
    responses((status = 200, description = "the last of them, oldest first", body = ActionList)))]
pub(super) async fn read(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::ReadAudit>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<ActionList>, ApiError> {
    let most = query.lines.unwrap_or(lines::USUAL);
    let read = app.audit.read(&permit, most as usize).await;
    let read = read.ok_or_else(|| ApiError::internal("the audit log cannot be read"))?;
    Ok(Json(ActionList { actions: read? }))
}
