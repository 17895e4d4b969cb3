//! `/v1/tokens`: who may do what.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use sandbox::chain;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::App;
use crate::error::{ApiError, ErrorBody};
use crate::request::body::Small;
use crate::request::{Act, Permitted};
use function::Label;
use platform::access::{NewToken, Patterns, Scope, Secret, Token, TokenError, to};
use platform::logs::stamp;

/// Longest request to make a token, in bytes.
const REQUEST_BYTES: u64 = 64 << 10;

/// A token that is to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The token's name.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_-]*$", min_length = 1, max_length = 64)]
    pub name: String,
    /// Whose functions it is for; `default` by default.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_-]*$", min_length = 1, max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What it allows.
    #[schema(min_items = 1)]
    pub scopes: Vec<Scope>,
    /// Patterns of the functions that it is for; all by default.
    #[serde(default)]
    pub functions: Vec<String>,
    /// Seconds until it expires; never by default.
    #[schema(minimum = 0.001, maximum = 31_000_000_000.0)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<f64>,
}

/// A token as lists show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenSummary {
    /// What it is called.
    pub name: String,
    /// The part of it that is no secret: `wool_<id>_…`.
    pub id: String,
    /// Whose functions it is for.
    pub tenant: String,
    /// What it is good for.
    pub scopes: Vec<Scope>,
    /// Patterns of the functions that it is for; an empty list means all.
    pub functions: Vec<String>,
    /// When it was made, RFC 3339.
    pub created: String,
    /// When it expires, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// A token that was just made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// What it is good for.
    #[serde(flatten)]
    pub summary: TokenSummary,
    /// The token. It is shown this once; only its hash is kept.
    pub token: String,
}

/// The tokens of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// Sorted by name.
    pub tokens: Vec<TokenSummary>,
}

impl TokenSummary {
    /// Describes one token.
    #[must_use]
    pub fn of(token: &Token) -> Self {
        Self {
            name: token.name.to_string(),
            id: token.id.clone(),
            tenant: token.tenant.to_string(),
            scopes: token.scopes.iter().copied().collect(),
            functions: token.functions.written().to_vec(),
            created: stamp(token.created),
            expires: token.expires.map(stamp),
        }
    }
}

impl TokenMade {
    /// What its owner is shown.
    #[must_use]
    pub fn of(token: &Token, secret: &Secret) -> Self {
        Self { summary: TokenSummary::of(token), token: secret.reveal().to_owned() }
    }
}

impl TokenRequest {
    /// What is asked for, if it makes sense.
    ///
    /// # Errors
    /// When a part of it does not.
    pub fn read(self) -> Result<NewToken, ApiError> {
        let bad = |message: String| ApiError::new(StatusCode::BAD_REQUEST, "bad-token", message);
        let tenant = self.tenant.map_or_else(|| Ok(Label::default_tenant()), |text| text.parse());
        let seconds = |seconds| {
            Duration::try_from_secs_f64(seconds).map_err(|_| bad(chain(&TokenError::Lifetime)))
        };
        Ok(NewToken {
            name: self.name.parse().map_err(|error| bad(chain(&error)))?,
            tenant: tenant.map_err(|error| bad(chain(&error)))?,
            scopes: self.scopes.into_iter().collect(),
            functions: Patterns::try_from(self.functions).map_err(|error| bad(chain(&error)))?,
            lifetime: self.lifetime.map(seconds).transpose()?,
        })
    }
}

/// Make a token. It is shown in this reply and never again.
#[utoipa::path(post, path = "/v1/tokens", tag = "access",
    request_body = TokenRequest,
    responses(
        (status = 201, description = "the token", body = TokenMade),
        (status = 400, description = "the request is not valid", body = ErrorBody),
        (status = 409, description = "the name is taken", body = ErrorBody),
    ))]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::CreateToken>,
    Extension(act): Extension<Arc<Act>>,
    body: Small<REQUEST_BYTES>,
) -> Result<(StatusCode, Json<TokenMade>), ApiError> {
    let request: TokenRequest = serde_json::from_slice(&body.bytes).map_err(|error| {
        let message = format!("the body does not ask for a token: {error}");
        ApiError::new(StatusCode::BAD_REQUEST, "bad-token", message)
    })?;
    let new = request.read()?;
    act.about(new.name.as_str());
    let work = async move {
        let (token, secret) = app.issuer.create(&permit, new).await?;
        Ok((StatusCode::CREATED, Json(TokenMade::of(&token, &secret))))
    };
    act.carry_out(work).await
}

/// List the tokens, without the secret part of each.
#[utoipa::path(get, path = "/v1/tokens", tag = "access",
    responses((status = 200, description = "all of them, expired ones included", body = TokenList)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::ListTokens>,
) -> Json<TokenList> {
    let tokens = app.issuer.list(&permit);
    Json(TokenList { tokens: tokens.iter().map(|token| TokenSummary::of(token)).collect() })
}

/// Remove a token. It is refused from now on.
#[utoipa::path(delete, path = "/v1/tokens/{token}", tag = "access",
    params(("token" = String, Path, description = "the token's name")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 404, description = "no such token", body = ErrorBody),
    ))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::RemoveToken>,
    Extension(act): Extension<Arc<Act>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, ApiError> {
    // Not UTF-8 once decoded: say the rule.
    let name = name.map_or_else(|_| "\u{fffd}".to_owned(), |Path(name)| name);
    let bad = |error| ApiError::new(StatusCode::BAD_REQUEST, "bad-name", chain(&error));
    let name: Label = name.parse().map_err(bad)?;
    let work = async move {
        if !app.issuer.remove(&permit, name.clone()).await? {
            let message = format!("no token {name}: see what there is with `wool token ls`");
            return Err(ApiError::new(StatusCode::NOT_FOUND, "unknown-token", message));
        }
        Ok(StatusCode::NO_CONTENT)
    };
    act.carry_out(work).await
}

impl From<TokenError> for ApiError {
    fn from(error: TokenError) -> Self {
        let status = match &error {
            TokenError::Exists(_) => StatusCode::CONFLICT,
            TokenError::NoScope | TokenError::AdminOfSome | TokenError::Lifetime => {
                StatusCode::BAD_REQUEST
            }
            _ => return Self::internal(chain(&error)),
        };
        Self::new(status, "bad-token", chain(&error))
    }
}
