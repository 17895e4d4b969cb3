//! Asks for the action of each route before anything of its body is read: a caller that may not ask could otherwise keep a
//! connection busy with one byte.

use std::sync::Arc;

use axum::RequestExt as _;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::{actions, queries};
use crate::error::ApiError;
use crate::request::entrance::{Asked, Entrance, bearer, turn_away};
use crate::request::{Act, body};
use platform::access::{Action, Grant, Requester};

/// Lets a request through whose caller may do what it asks for. The handlers find the [`Grant`] among its extensions.
pub(super) async fn identify(
    State(entrance): State<Entrance>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    // Not passed on: whatever were there would be in no table. Everybody may be told that nothing is.
    let Some(path) = path else {
        return turn_away(request, super::nothing_here().await).await;
    };
    let Some(action) = actions::of(request.method(), &path) else {
        return match queries::check(request.method(), &path, request.uri()) {
            Ok(()) => next.run(body::arriving(request)).await,
            Err(refusal) => turn_away(request, refusal).await,
        };
    };
    let shown = bearer(request.headers());
    let requester = match entrance.requester(&request, action.scope(), shown) {
        Ok(requester) => requester,
        Err(refused) => return turn_away(request, refused).await,
    };
    let act = begin(&entrance, &mut request, &path, action, &requester).await;
    let response = match admit(&mut request, &path, action, requester).await {
        Err(refusal) => {
            // Not later: its connection may have to leave while it is turned away, and the line would say that it was not
            // answered, as of what may have been done.
            if let Some(act) = &act {
                act.answered(&refusal.clone().into_response());
            }
            turn_away(request, refusal).await
        }
        Ok(grant) => {
            entrance.welcome(&request, grant.requester());
            request.extensions_mut().insert(grant);
            if let Some(act) = &act {
                request.extensions_mut().insert(Arc::clone(act));
            }
            next.run(body::arriving(request)).await
        }
    };
    if let Some(act) = act {
        act.answered(&response);
    }
    response
}

/// Asks for the action, about the function in the path.
async fn admit(
    request: &mut Request,
    path: &str,
    action: Action,
    requester: Requester,
) -> Result<Grant, ApiError> {
    let function = parameter(request, "name").await;
    let grant = requester.admit(action, function)?;
    // Not before: a caller that may not ask learns nothing of what could be asked.
    queries::check(request.method(), path, request.uri())?;
    Ok(grant)
}

/// The audit line of what is asked for, if that changes something or is another tenant's.
async fn begin(
    entrance: &Entrance,
    request: &mut Request,
    path: &str,
    action: Action,
    requester: &Requester,
) -> Option<Arc<Act>> {
    let action = match action.audited() {
        Some(action) => action.to_owned(),
        None => format!("{} {path}", requester.stranger_to().map(|_| request.method())?),
    };
    let subject = match parameter(request, "key").await {
        Some(key) => Some(key),
        None => parameter(request, "token").await,
    };
    let function = parameter(request, "name").await;
    Some(entrance.begin(request, requester, Asked { action, function, subject }))
}

/// A part of the path.
async fn parameter(request: &mut Request, wanted: &str) -> Option<String> {
    let all = request.extract_parts::<RawPathParams>().await.ok()?;
    all.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value.to_owned())
}
