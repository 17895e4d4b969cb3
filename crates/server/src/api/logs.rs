//! `/v1/functions/{name}/logs`: what a function printed.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use utoipa::IntoParams;

use super::budget::{Budgets, Held};
use super::error::ApiError;
use super::{App, Asked, ErrorBody, Named, Query, lines};
use crate::access::Caller;
use crate::logs::{Entry, Follower};

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogsQuery {
    /// Go on with what is written from now on, until the client hangs up or its token is good for nothing any more.
    #[serde(default)]
    follow: bool,
    /// How many lines to go back; 100 unless said, at most 100 000.
    #[param(maximum = 100_000)]
    #[serde(default, deserialize_with = "lines::lines")]
    lines: Option<u32>,
    /// Only lines of this invocation, and those written while the code was imported.
    invocation: Option<String>,
    /// Only lines from this moment on, RFC 3339 in UTC with milliseconds.
    since: Option<String>,
}

impl LogsQuery {
    fn wants(&self, entry: &Entry) -> bool {
        // Times in one format and zone compare as text.
        let recent = self.since.as_ref().is_none_or(|since| entry.time >= *since);
        let own = self
            .invocation
            .as_ref()
            .is_none_or(|id| entry.invocation == *id || entry.invocation == "-");
        recent && own
    }
}

/// Read what a function printed, as lines of text or, with `Accept: application/x-ndjson`, of JSON.
#[utoipa::path(get, path = "/v1/functions/{name}/logs", tag = "functions",
    params(("name" = String, Path, description = "the function's name"), LogsQuery),
    responses(
        (status = 200, description = "one entry a line", content((String = "text/plain"), (Entry = "application/x-ndjson"))),
        (status = 400, description = "the query is none", body = ErrorBody),
        (status = 404, description = "no such function", body = ErrorBody),
        (status = 429, description = "as many logs are followed as may be", body = ErrorBody),
    ))]
pub(super) async fn read(
    State(app): State<Arc<App>>,
    Asked { caller, .. }: Asked,
    Extension(budgets): Extension<Budgets>,
    Named(name): Named,
    Query(query): Query<LogsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if app.registry.get(&name).is_none() {
        return Err(ApiError::unknown_function(name.name()));
    }
    let mut seat = budgets.follow.hold(name.tenant());
    if query.follow {
        seat.grow_to(1)?;
    }
    app.logs.flush().await;
    let (logs, lines) = (Arc::clone(&app.logs), query.lines.unwrap_or(lines::USUAL));
    let read = tokio::task::spawn_blocking(move || logs.read(&name, lines as usize)).await;
    let unreadable =
        |error: std::io::Error| ApiError::internal(format!("the log cannot be read: {error}"));
    let (entries, follower) =
        read.map_err(|_| ApiError::internal("the log cannot be read"))?.map_err(unreadable)?;
    let json = headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/x-ndjson");
    let content_type = if json { "application/x-ndjson" } else { "text/plain; charset=utf-8" };
    let body = if query.follow {
        let first = stream::iter([render(&entries, &query, json)]);
        let rest = follow(follower, query, json, seat).take_until(Box::pin(over(app, caller)));
        Body::from_stream(first.chain(rest).map(Ok::<_, Infallible>))
    } else {
        Body::from(render(&entries, &query, json))
    };
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

/// Returns when nobody may be told more: the worker stops, or whoever asks would not be let in any more.
async fn over(app: Arc<App>, caller: Caller) {
    let shut_out = app.tokens.until(|now| match &caller {
        Caller::Token(token) => !app.tokens.is_good(token, now),
        Caller::Anyone => !app.config.tokens.lets_anyone_in(&app.tokens),
        Caller::User { .. } => false,
    });
    tokio::select! { () = app.stop.cancelled() => {}, () = shut_out => {} }
}

fn follow(
    follower: Follower,
    query: LogsQuery,
    json: bool,
    seat: Held,
) -> impl stream::Stream<Item = Bytes> + Send {
    stream::unfold((follower, query, json, seat), async |(mut follower, query, json, seat)| {
        match follower.next().await {
            Ok(Some(entries)) => {
                Some((render(&entries, &query, json), (follower, query, json, seat)))
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(%error, "a log cannot be followed any more");
                None
            }
        }
    })
}

fn render(entries: &[Entry], query: &LogsQuery, json: bool) -> Bytes {
    let mut out = String::new();
    for entry in entries.iter().filter(|entry| query.wants(entry)) {
        if json {
            out.push_str(&serde_json::to_string(entry).unwrap_or_default());
        } else {
            out.push_str(&entry.to_text());
        }
        out.push('\n');
    }
    Bytes::from(out)
}
