//! `/v1/functions/{name}/logs`: what a function printed.

use std::io;
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
use crate::logs::{Entry, Reader};

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
        (status = 429, description = "as many logs are followed, or read at length, as may be", body = ErrorBody),
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
    app.logs.flush().await;
    let mut seat = budgets.follow.hold(name.tenant());
    let (logs, lines) = (Arc::clone(&app.logs), query.lines.unwrap_or(lines::USUAL));
    let read = tokio::task::spawn_blocking(move || logs.read(&name, lines as usize)).await;
    let unreadable =
        |error: io::Error| ApiError::internal(format!("the log cannot be read: {error}"));
    let mut reader =
        read.map_err(|_| ApiError::internal("the log cannot be read"))?.map_err(unreadable)?;
    let json = headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/x-ndjson");
    let content_type = if json { "application/x-ndjson" } else { "text/plain; charset=utf-8" };
    let body = if query.follow {
        seat.grow_to(1)?;
        let rest = pieces(reader.following(), query, json, seat);
        Body::from_stream(rest.take_until(Box::pin(over(app, caller))))
    } else {
        let entries = reader.next().await.map_err(unreadable)?.unwrap_or_default();
        let first = render(&entries, &query, json);
        if reader.is_over() {
            Body::from(first)
        } else {
            // It keeps a file open until its client has read it.
            seat.grow_to(1)?;
            let rest = pieces(reader, query, json, seat);
            Body::from_stream(stream::iter([Ok(first)]).chain(rest))
        }
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

/// What a reader reads, each piece when the client has taken the one before.
fn pieces(
    reader: Reader,
    query: LogsQuery,
    json: bool,
    seat: Held,
) -> impl stream::Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold((reader, query, json, seat), async |(mut reader, query, json, seat)| {
        let read = reader.next().await;
        let entries =
            read.inspect_err(|error| tracing::warn!(%error, "a log cannot be read on"))?;
        Ok(entries.map(|entries| (render(&entries, &query, json), (reader, query, json, seat))))
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
