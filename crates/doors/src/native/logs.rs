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
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use super::budget::{Budgets, Held};
use super::error::ApiError;
use super::{App, Asked, ErrorBody, Named, Query, lines};
use function::WholeName;
use platform::access::Caller;
use platform::logs::{Entry, Reader};

/// Which lines.
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
    Asked { caller, .. }: Asked,
    Extension(budgets): Extension<Budgets>,
    Named(name): Named,
    Query(query): Query<LogsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // Before the function is looked for: no removal comes between.
    let removals = app.logs.removals();
    if app.registry.get(&name).is_none() {
        return Err(ApiError::unknown_function(name.name()));
    }
    app.logs.flush().await;
    let mut seat = budgets.follow.hold(name.tenant());
    let (logs, lines) = (Arc::clone(&app.logs), query.lines.unwrap_or(lines::USUAL));
    let whose = name.clone();
    let read = tokio::task::spawn_blocking(move || logs.read(&whose, lines as usize)).await;
    let unreadable =
        |error: io::Error| ApiError::internal(format!("the log cannot be read: {error}"));
    let mut reader =
        read.map_err(|_| ApiError::internal("the log cannot be read"))?.map_err(unreadable)?;
    let json = headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/x-ndjson");
    let content_type = if json { "application/x-ndjson" } else { "text/plain; charset=utf-8" };
    let body = if query.follow {
        seat.grow_to(1)?;
        let rest = pieces(reader.following(), query, json, seat);
        Body::from_stream(until(rest, over(app, caller, name, removals)))
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

/// Returns when no more is to be told: the function was removed, the worker stops, or whoever asks would not be let in any
/// more.
async fn over(
    app: Arc<App>,
    caller: Caller,
    name: WholeName,
    removals: Receiver<WholeName>,
) -> Result<(), Cut> {
    let shut_out = app.tokens.until(|now| match &caller {
        Caller::Token(token) => !app.tokens.is_good(token, now),
        Caller::Anyone => !app.settings.tokens.lets_anyone_in(&app.tokens),
        Caller::User { .. } => false,
    });
    tokio::select! {
        () = app.stop.cancelled() => Err(Cut),
        () = shut_out => Err(Cut),
        () = removed(&app, &name, removals) => Ok(()),
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

/// Returns when the function's log was removed with it.
async fn removed(app: &App, name: &WholeName, mut removals: Receiver<WholeName>) {
    loop {
        match removals.recv().await {
            Ok(removed) if removed == *name => return,
            Ok(_) => {}
            // Its name may have been among those that were missed.
            Err(RecvError::Lagged(_)) if app.registry.get(name).is_none() => return,
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
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
