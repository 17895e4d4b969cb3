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
use thiserror::Error;
use utoipa::IntoParams;

use super::{Query, lines};
use crate::App;
use crate::error::{ApiError, ErrorBody};
use crate::request::{Budgets, Held, Permitted};
use platform::access::{Permit, to};
use platform::logs::{Entry, OpenLog, Reader, Removal};

/// Selects lines of a log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogsQuery {
    /// Go on with new lines, until the client hangs up or the function is removed. If the worker stops first, or the token
    /// becomes invalid, the reply is cut off without a proper end.
    #[serde(default)]
    follow: bool,
    /// How many lines to go back; 100 by default, at most 100 000.
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
        (status = 400, description = "the query is not valid", body = ErrorBody),
        (status = 404, description = "no such function", body = ErrorBody),
        (status = 429, description = "too many logs are followed, or read at length, at once", body = ErrorBody),
    ))]
pub(super) async fn read(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::ReadLogs>,
    Extension(budgets): Extension<Budgets>,
    Query(query): Query<LogsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let unreadable =
        |error: io::Error| ApiError::internal(format!("the log cannot be read: {error}"));
    let entries = query.lines.unwrap_or(lines::USUAL) as usize;
    let opened = app.logs.open(&permit, entries).await.map_err(unreadable)?;
    let unknown = || ApiError::unknown_function(permit.function().name());
    let OpenLog { mut reader, removal } = opened.ok_or_else(unknown)?;
    let mut seat = budgets.follow.hold(permit.tenant().as_str());
    let json = headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/x-ndjson");
    let content_type = if json { "application/x-ndjson" } else { "text/plain; charset=utf-8" };
    let body = if query.follow {
        seat.grow_to(1)?;
        let rest = pieces(reader.following(), query, json, seat);
        Body::from_stream(until(rest, over(app, permit, removal)))
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

/// The function is there, and its log is not told any further.
#[derive(Debug, Error)]
#[error("the log is not followed any further")]
struct Cut;

/// Returns when following ends: the function was removed, the worker stops, or the caller would not be let in any more.
async fn over(app: Arc<App>, permit: Permit<to::ReadLogs>, removal: Removal) -> Result<(), Cut> {
    tokio::select! {
        () = app.control.stopping() => Err(Cut),
        () = permit.lapsed(&app.tokens) => Err(Cut),
        () = removal.wait() => Ok(()),
    }
}

/// What a reader reads, each piece when the client has taken the one before.
fn pieces(
    reader: Reader,
    query: LogsQuery,
    json: bool,
    seat: Held,
) -> impl stream::Stream<Item = Result<Bytes, Cut>> + Send {
    stream::try_unfold((reader, query, json, seat), async |(mut reader, query, json, seat)| {
        let read = reader.next().await;
        let entries = read.map_err(|error| {
            tracing::warn!(%error, "a log cannot be read on");
            Cut
        })?;
        Ok(entries.map(|entries| (render(&entries, &query, json), (reader, query, json, seat))))
    })
}

/// Pieces until it is over; an end that is not the log's own cuts the reply off.
fn until(
    pieces: impl stream::Stream<Item = Result<Bytes, Cut>> + Send,
    over: impl Future<Output = Result<(), Cut>> + Send,
) -> impl stream::Stream<Item = Result<Bytes, Cut>> + Send {
    let following = Some((Box::pin(pieces), Box::pin(over)));
    stream::unfold(following, async |following| {
        let (mut pieces, mut over) = following?;
        let end = tokio::select! {
            piece = pieces.next() => match piece {
                Some(Ok(piece)) => return Some((Ok(piece), Some((pieces, over)))),
                Some(Err(cut)) => Err(cut),
                None => Err(Cut),
            },
            end = over.as_mut() => end,
        };
        // What was told already is on its way before the reply is cut off.
        tokio::task::yield_now().await;
        end.err().map(|cut| (Err(cut), None))
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
