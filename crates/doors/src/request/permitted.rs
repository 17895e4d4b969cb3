//! The permit of a request, for the handler that passes it on to its use case.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::error::ApiError;
use platform::access::{Grant, GrantError, Permit, Purpose};

/// What the entrance was granted for the request.
#[derive(Debug)]
pub(crate) struct Permitted<P: Purpose>(pub(crate) Permit<P>);

impl<P: Purpose, S: Send + Sync> FromRequestParts<S> for Permitted<P> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // None on an open route: its caller was not asked for.
        let grant = parts.extensions.get::<Grant>().cloned();
        let grant = grant.ok_or_else(|| ApiError::internal("the request was not admitted"))?;
        Ok(Self(grant.permit()?))
    }
}

impl From<GrantError> for ApiError {
    fn from(error: GrantError) -> Self {
        match error {
            GrantError::Name(name) => name.into(),
            GrantError::Action { .. } => Self::internal(error.to_string()),
        }
    }
}
