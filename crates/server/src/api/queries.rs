//! What may stand behind the `?` of a path: nothing, where a route takes nothing. A route that takes something refuses what it
//! does not know itself, as it reads it.

use std::collections::HashSet;
use std::sync::LazyLock;

use axum::http::{Method, StatusCode, Uri};
use utoipa::openapi::path::ParameterIn;

use super::{ApiError, describe};

/// The routes that take parameters, by method and path, as the description of the API has them.
static TAKE_SOME: LazyLock<HashSet<(Method, String)>> = LazyLock::new(|| {
    let mut api = super::openapi();
    let mut all = HashSet::new();
    for (path, item) in &mut api.paths.paths {
        for (method, operation) in describe::operations(item) {
            let mut parameters = operation.parameters.iter().flatten();
            if parameters.any(|one| one.parameter_in == ParameterIn::Query) {
                all.insert((method, path.clone()));
            }
        }
    }
    all
});

/// Refuses parameters where the route takes none: what they were to change, they would not.
pub(super) fn check(method: &Method, path: &str, uri: &Uri) -> Result<(), ApiError> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(()) };
    let asked = if *method == Method::HEAD { Method::GET } else { method.clone() };
    if TAKE_SOME.contains(&(asked, path.to_owned())) {
        return Ok(());
    }
    let first = query.split(['=', '&']).next().unwrap_or_default();
    let message = format!(
        "unknown parameter `{first}`: {method} {path} takes none; /openapi.json says what each path takes"
    );
    Err(ApiError::new(StatusCode::BAD_REQUEST, "bad-query", message))
}
