//! `/v1/functions/{name}/versions`, `/aliases`: published versions, and names for them.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::{Extension, Json};
use platform::access::to;
use platform::functions::{Alias, Release, ReleaseError};
use platform::logs::stamp;
use sandbox::chain;
use serde::{Deserialize, Serialize};
use store::AliasRow;
use utoipa::ToSchema;

use crate::App;
use crate::error::{ApiError, ErrorBody};
use crate::request::body::Small;
use crate::request::{Act, Permitted};

/// Longest request that is read at all, in bytes.
pub(super) const REQUEST_BYTES: u64 = 16 << 10;

/// A published version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseSummary {
    /// Its number: it never means another version.
    pub number: u32,
    /// The version's id.
    pub version: String,
    /// When it was published, RFC 3339.
    pub published: String,
    /// What its author says of it.
    pub description: String,
}

/// A name for a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AliasSummary {
    /// The alias's name.
    pub name: String,
    /// The number of the published version that it points to; none: the current version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// A second version, which gets a share of the calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// What its author says of it.
    pub description: String,
    /// When it was last pointed somewhere, RFC 3339.
    pub updated: String,
}

/// A second version of an alias.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// The number of a published version.
    #[schema(minimum = 1)]
    pub number: u32,
    /// Its share of the calls.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub share: f64,
}

/// What is published.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishRequest {
    /// What its author says of it.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub description: String,
}

/// Where an alias is to point.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AliasRequest {
    /// The number of a published version.
    #[schema(minimum = 1)]
    pub number: u32,
    /// A second version, which gets a share of the calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// What its author says of it.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub description: String,
}

impl From<Release> for ReleaseSummary {
    fn from(release: Release) -> Self {
        Self {
            number: release.number,
            version: release.function.current().id.to_string(),
            published: stamp(release.published),
            description: release.description,
        }
    }
}

impl From<AliasRow> for AliasSummary {
    fn from(alias: AliasRow) -> Self {
        Self {
            name: alias.name.to_string(),
            number: alias.number,
            canary: alias.canary.map(|(number, share)| Canary { number, share }),
            description: alias.description,
            updated: stamp(alias.updated),
        }
    }
}

/// Give the current version of a function a number, under which it stays callable: `/run/{name}?qualifier=3`.
///
/// A version that has the newest number keeps it. Numbers are not used twice.
#[utoipa::path(post, path = "/v1/functions/{name}/versions", tag = "versions",
    params(("name" = String, Path, description = "the function's name")),
    request_body = Option<PublishRequest>,
    responses(
        (status = 201, description = "the published version", body = ReleaseSummary),
        (status = 400, description = "the request is not valid", body = ErrorBody),
        (status = 404, description = "no such function", body = ErrorBody),
        (status = 409, description = "it has as many published versions as it may", body = ErrorBody),
    ))]
pub(super) async fn publish(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::Publish>,
    Extension(act): Extension<Arc<Act>>,
    body: Small<REQUEST_BYTES>,
) -> Result<(StatusCode, Json<ReleaseSummary>), ApiError> {
    let request: Option<PublishRequest> = body.read().map_err(not_taken)?;
    let description = request.unwrap_or_default().description;
    let noted = Arc::clone(&act);
    let work = async move {
        let release = app.releases.publish(&permit, description, None).await?;
        noted.made(&release.function.current().id.0);
        noted.about(&release.number.to_string());
        Ok((StatusCode::CREATED, Json(release.into())))
    };
    act.carry_out(work).await
}

/// Remove a published version. Its number is not used again.
#[utoipa::path(delete, path = "/v1/functions/{name}/versions/{number}", tag = "versions",
    params(("name" = String, Path, description = "the function's name"),
           ("number" = u32, Path, description = "the version's number")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 404, description = "no such version", body = ErrorBody),
        (status = 409, description = "an alias points to it", body = ErrorBody),
    ))]
pub(super) async fn unpublish(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::Unpublish>,
    Extension(act): Extension<Arc<Act>>,
    Named(number): Named,
) -> Result<StatusCode, ApiError> {
    let name = permit.function().name().to_owned();
    let unknown = |number: &str| {
        let message =
            format!("{name} has no published version {number:?}: see `wool versions {name}`");
        ApiError::new(StatusCode::NOT_FOUND, "unknown-version", message)
    };
    let parsed: u32 = number.parse().map_err(|_| unknown(&number))?;
    act.about(&number);
    let missing = unknown(&number);
    let work = async move {
        match app.releases.unpublish(&permit, parsed).await? {
            true => Ok(StatusCode::NO_CONTENT),
            false => Err(missing),
        }
    };
    act.carry_out(work).await
}

/// Point an alias at a published version; `/run/{name}?qualifier={alias}` calls that.
#[utoipa::path(put, path = "/v1/functions/{name}/aliases/{alias}", tag = "versions",
    params(("name" = String, Path, description = "the function's name"),
           ("alias" = String, Path, description = "the alias: up to 128 letters, digits, `-` and `_`, not digits alone")),
    request_body = AliasRequest,
    responses(
        (status = 200, description = "the alias", body = AliasSummary),
        (status = 400, description = "the name or the request is not valid", body = ErrorBody),
        (status = 404, description = "no such function or version", body = ErrorBody),
        (status = 409, description = "it has as many aliases as it may", body = ErrorBody),
    ))]
pub(super) async fn set_alias(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::SetAlias>,
    Extension(act): Extension<Arc<Act>>,
    Named(alias): Named,
    body: Small<REQUEST_BYTES>,
) -> Result<Json<AliasSummary>, ApiError> {
    let alias = alias.parse().map_err(bad_version)?;
    let request: Option<AliasRequest> = body.read().map_err(not_taken)?;
    let missing =
        || bad_version("the body names no version: {\"number\": 3} points an alias to it");
    let AliasRequest { number, canary, description } = request.ok_or_else(missing)?;
    let canary = canary.map(|canary| (canary.number, canary.share));
    let second = canary.map(|(number, share)| format!(", {number} gets {share}"));
    act.about(&format!("{alias} to {number}{}", second.unwrap_or_default()));
    let work = async move {
        let to = Alias { number: Some(number), canary, description };
        Ok(Json(app.releases.set_alias(&permit, alias, to).await?.into()))
    };
    act.carry_out(work).await
}

/// Remove an alias. The version that it points to stays.
#[utoipa::path(delete, path = "/v1/functions/{name}/aliases/{alias}", tag = "versions",
    params(("name" = String, Path, description = "the function's name"),
           ("alias" = String, Path, description = "the alias")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 404, description = "no such function or alias", body = ErrorBody),
    ))]
pub(super) async fn remove_alias(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::RemoveAlias>,
    Extension(act): Extension<Arc<Act>>,
    Named(alias): Named,
) -> Result<StatusCode, ApiError> {
    let alias: function::AliasName = alias.parse().map_err(bad_version)?;
    act.about(&format!("{alias}"));
    let work = async move {
        if app.releases.remove_alias(&permit, alias.clone()).await? {
            return Ok(StatusCode::NO_CONTENT);
        }
        let name = permit.function().name();
        let message = format!("{name} has no alias {alias}: see `wool versions {name}`");
        Err(ApiError::new(StatusCode::NOT_FOUND, "unknown-version", message))
    };
    act.carry_out(work).await
}

/// The body is no JSON, or other than the path takes.
pub(super) fn not_taken(error: serde_json::Error) -> ApiError {
    bad_version(format!("the body is not what this path takes: {error}"))
}

/// The last name of a path: of an alias, or a version's number.
pub(super) struct Named(String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = RawPathParams::from_request_parts(parts, state).await;
        let last = path.as_ref().ok().and_then(|all| all.iter().last());
        // Not UTF-8 once decoded: the refusal says the rule.
        Ok(Self(last.map_or("\u{fffd}", |(_, name)| name).to_owned()))
    }
}

fn bad_version(message: impl ToString) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "bad-version", message.to_string())
}

impl From<ReleaseError> for ApiError {
    fn from(error: ReleaseError) -> Self {
        let message = chain(&error);
        match error {
            ReleaseError::Unknown(name) => Self::unknown_function(name.name()),
            ReleaseError::Unpublished { .. } => {
                Self::new(StatusCode::NOT_FOUND, "unknown-version", message)
            }
            ReleaseError::UnknownAlias { .. } => {
                Self::new(StatusCode::NOT_FOUND, "unknown-alias", message)
            }
            ReleaseError::TooMany { .. }
            | ReleaseError::Aliased { .. }
            | ReleaseError::AliasExists { .. }
            | ReleaseError::Changed(_) => Self::new(StatusCode::CONFLICT, "conflict", message),
            ReleaseError::Share(_) | ReleaseError::Description(_) => bad_version(message),
            ReleaseError::Store(_) | ReleaseError::BrokeOff => Self::internal(message),
        }
    }
}
