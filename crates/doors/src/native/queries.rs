//! What may stand behind the `?` of a path: nothing, where a route takes nothing. A route that takes something refuses what it
//! does not know itself, as it reads it.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::http::{Method, StatusCode, Uri};
use utoipa::openapi::path::ParameterIn;

use super::describe;
use crate::error::ApiError;

/// Whether a route takes parameters, by method and path, as the description of the API has them.
static TAKES_SOME: LazyLock<HashMap<(Method, String), bool>> = LazyLock::new(|| {
    let mut api = super::openapi();
    let mut all = HashMap::new();
    for (path, item) in &mut api.paths.paths {
        for (method, operation) in describe::operations(item) {
            let mut parameters = operation.parameters.iter().flatten();
            let takes_some = parameters.any(|one| one.parameter_in == ParameterIn::Query);
            all.insert((method, path.clone()), takes_some);
        }
    }
    all
});

/// Refuses parameters where the route takes none: what they were to change, they would not.
pub(super) fn check(method: &Method, path: &str, uri: &Uri) -> Result<(), ApiError> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(()) };
    let asked = if *method == Method::HEAD { Method::GET } else { method.clone() };
    // Of a method that is not there, that is what has to be said.
    if TAKES_SOME.get(&(asked, path.to_owned())) != Some(&false) {
        return Ok(());
    }
    let first = query.split(['=', '&']).next().unwrap_or_default();
    let message = format!(
        "unknown parameter `{first}`: {method} {path} takes none; /openapi.json says what each path takes"
    );
    Err(ApiError::new(StatusCode::BAD_REQUEST, "bad-query", message))
}
