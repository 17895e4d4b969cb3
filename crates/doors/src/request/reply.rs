//! Replies that wait to be read: their call is over, its part of the tenant's limits given back, and they are in memory
//! until their clients have taken them.

use axum::Extension;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use super::budget::{Budgets, Held};
use crate::error::ApiError;
use platform::access::Grant;

/// Replies up to this are not counted: a connection may take as much for itself.
const SMALL: u64 = 64 << 10;

/// A reply, and what it has of a budget.
struct Counted {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts a large reply among its tenant's bodies until its client has read it, or has gone. One that does not fit is
/// dropped, and a refusal takes its place: clients that read no replies could otherwise fill the memory with them.
pub(crate) async fn count(
    Extension(budgets): Extension<Budgets>,
    request: Request,
    next: Next,
) -> Response {
    // Replies of routes that ask for no caller are small, and the same for all.
    let Some(grant) = request.extensions().get::<Grant>() else {
        return next.run(request).await;
    };
    let tenant = grant.requester().tenant.clone();
    let reply = next.run(request).await;
    held(&budgets, tenant.as_str(), reply, ApiError::into_response).await
}

/// The reply, counted; a refusal in the form of its API where it does not fit.
pub(crate) async fn held(
    budgets: &Budgets,
    tenant: &str,
    reply: Response,
    refuse: impl Fn(ApiError) -> Response,
) -> Response {
    let (mut parts, body) = reply.into_parts();
    // A stream is made as it is read: nothing of it waits.
    let Some(size) = body.size_hint().exact().filter(|size| *size > SMALL) else {
        return Response::from_parts(parts, body);
    };
    let mut held = budgets.run.hold(tenant);
    if held.grow_to(size).is_err() {
        let (refusal, body) = refuse(ApiError::reply_dropped()).into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        // What else its headers say is still so: which invocation it was, and how long it took.
        parts.headers.extend(refusal.headers);
        parts.extensions.extend(refusal.extensions);
        parts.status = refusal.status;
        return Response::from_parts(parts, body);
    }
    match body.collect().await {
        // Not until the body is dropped, but until its bytes are: the connection has them still to write.
        Ok(whole) => {
            let counted = Counted { bytes: whole.to_bytes(), _held: held };
            Response::from_parts(parts, Body::from(Bytes::from_owner(counted)))
        }
        Err(_) => refuse(ApiError::internal("the reply broke off")),
    }
}
