//! Reading bodies without ever holding more than allowed, or waiting longer.
//!
//! A body that is too large is refused by its `Content-Length`, or as soon as it passes the limit. What the client
//! still sends is read and thrown away for a moment before the refusal: a client that is cut off while it writes sees
//! a broken connection and not the 413. One that waits for `100 Continue` is told at once.
//!
//! What has been read counts against a [`Budget`] until its call is over: a thousand bodies below their limit are
//! too many, too. One that comes too slowly is given up.

use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::App;
use super::budget::{Bodies, Budget, Held};
use super::error::ApiError;
use crate::connections::Visit;

/// How long the rest of a refused body is read.
const DISCARD: Duration = Duration::from_secs(10);

/// Bodies up to this are read before anything else is done with their request.
const SMALL: u64 = 64 << 10;

/// Bytes a second below which a body is too slow, once its client has had its time.
const SLOWEST: u64 = 64 << 10;

/// A body on its way in.
struct Incoming<'a> {
    body: Body,
    limit: u64,
    read: u64,
    began: Instant,
    /// How long its client may say nothing.
    patience: Duration,
    /// None when it is counted already.
    budget: Option<&'a Budget>,
    held: Option<OwnedSemaphorePermit>,
}

impl<'a> Incoming<'a> {
    async fn begin(
        headers: &HeaderMap,
        body: Body,
        (limit, patience): (u64, Duration),
        budget: Option<&'a Budget>,
    ) -> Result<Self, ApiError> {
        let began = Instant::now();
        let mut this = Self { body, limit, read: 0, began, patience, budget, held: None };
        match announced(headers) {
            Some(length) if length > limit && headers.contains_key(header::EXPECT) => {
                return Err(too_large(limit));
            }
            Some(length) if length > limit => return Err(this.refuse(too_large(limit)).await),
            _ => {}
        }
        if let Some(budget) = budget {
            match budget.take(budget.least) {
                Ok(least) => this.held = Some(least),
                Err(exceeded) => return Err(this.refuse(exceeded).await),
            }
        }
        Ok(this)
    }

    /// The next piece of it, which is counted.
    async fn piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        let Some(piece) = self.next().await? else { return Ok(None) };
        self.read += piece.len() as u64;
        if self.read > self.limit {
            return Err(self.refuse(too_large(self.limit)).await);
        }
        if let Some(budget) = self.budget {
            let beyond = self.read.saturating_sub(budget.least);
            let more = beyond.min(piece.len() as u64);
            match (budget.take(more), &mut self.held) {
                (Err(exceeded), _) => return Err(self.refuse(exceeded).await),
                (Ok(more), Some(held)) => held.merge(more),
                (Ok(more), held) => *held = Some(more),
            }
        }
        Ok(Some(piece))
    }

    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let until = self.began + self.patience + Duration::from_secs(self.read / SLOWEST);
        loop {
            let frame = timeout_at(until, self.body.frame()).await.map_err(|_| self.slow())?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| {
                ApiError::new(
                    StatusCode::BAD_REQUEST,
                    "broken-body",
                    format!("the body broke off: {error}"),
                )
            })?;
            // Trailers are of no interest.
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
    }

    fn slow(&self) -> ApiError {
        let message = format!(
            "{} bytes of the body came in {} s: send it faster, or raise `client_timeout` in the worker's configuration",
            self.read,
            self.began.elapsed().as_secs()
        );
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "slow-body", message)
    }

    /// The refusal, once what the client still sends is read.
    async fn refuse(&mut self, refusal: ApiError) -> ApiError {
        // What was taken is not kept.
        self.held = None;
        let discard = async { while let Ok(Some(_)) = self.next().await {} };
        // When it takes longer, the client sees the connection close: it had its chance.
        drop(tokio::time::timeout(DISCARD, discard).await);
        refusal
    }

    fn held(&mut self) -> Held {
        Held::of(self.held.take())
    }
}

/// Makes the request's connection busy once its body has come whole: whoever is unknown has it for no half-sent request.
pub(super) fn arriving(request: Request, visit: Option<Visit>) -> Request {
    let Some(visit) = visit else { return request };
    if request.body().is_end_stream() {
        visit.admit();
        return request;
    }
    request.map(|body| Body::new(Arriving { body, visit }))
}

/// A body on its way.
struct Arriving {
    body: Body,
    visit: Visit,
}

impl hyper::body::Body for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() {
            self.visit.admit();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads and throws away what the client still sends, for a moment.
pub(super) async fn discard(request: Request) {
    // It sends nothing before it is told to.
    if request.headers().contains_key(header::EXPECT) {
        return;
    }
    let mut body = request.into_body();
    let discard = async { while let Some(Ok(_)) = body.frame().await {} };
    drop(tokio::time::timeout(DISCARD, discard).await);
}

/// Reads small bodies first. A request that is refused without reading its body has its connection closed when the body
/// comes later than the headers: the client would lose the refusal, or the next call on that connection.
pub(super) async fn read_small_first(
    State(app): State<Arc<App>>,
    Extension(bodies): Extension<Bodies>,
    request: Request,
    next: Next,
) -> Response {
    let length = announced(request.headers()).unwrap_or(0);
    if !(1..=SMALL).contains(&length) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let allowed = (SMALL, app.config.client_timeout.0);
    match collect(&parts.headers, body, allowed, Some(&bodies.run)).await {
        Ok((bytes, held)) => {
            parts.extensions.insert(held);
            next.run(Request::from_parts(parts, Body::from(bytes))).await
        }
        Err(error) => error.into_response(),
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads a body of at most that many bytes into memory, within that time and more for what comes. It counts against the
/// budget as long as what is returned with it lives.
pub(super) async fn collect(
    headers: &HeaderMap,
    body: Body,
    allowed: (u64, Duration),
    budget: Option<&Budget>,
) -> Result<(Bytes, Held), ApiError> {
    let mut body = Incoming::begin(headers, body, allowed, budget).await?;
    let Some(first) = body.piece().await? else { return Ok((Bytes::new(), body.held())) };
    let Some(second) = body.piece().await? else {
        // The usual case, without copying.
        return Ok((first, body.held()));
    };
    let mut all = Vec::with_capacity(first.len() + second.len());
    all.extend_from_slice(&first);
    all.extend_from_slice(&second);
    while let Some(piece) = body.piece().await? {
        all.extend_from_slice(&piece);
    }
    Ok((Bytes::from(all), body.held()))
}

/// Reads a body into an unnamed file in `dir`, as [`collect`] does into memory; returns the file at its beginning.
pub(super) async fn spool(
    headers: &HeaderMap,
    body: Body,
    allowed: (u64, Duration),
    budget: &Budget,
    dir: &Path,
) -> Result<(std::fs::File, Held), ApiError> {
    let mut body = Incoming::begin(headers, body, allowed, Some(budget)).await?;
    let unwritable = |error: io::Error| {
        ApiError::internal(format!(
            "cannot store the upload: {error}; is there space in the state directory?"
        ))
    };
    let mut file = tempfile::tempfile_in(dir).map_err(unwritable)?;
    while let Some(piece) = body.piece().await? {
        // Into the page cache: short enough to do here.
        file.write_all(&piece).map_err(unwritable)?;
    }
    file.rewind().map_err(unwritable)?;
    Ok((file, body.held()))
}

fn too_large(limit: u64) -> ApiError {
    let limit = crate::quantity::Bytes(limit);
    let message = format!(
        "the body is larger than {limit}: send less, or raise `run_body` or `deploy_body` in the worker's configuration"
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", message)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn pieces(sizes: &[usize]) -> Body {
        let pieces: Vec<io::Result<Bytes>> =
            sizes.iter().map(|size| Ok(Bytes::from(vec![7; *size]))).collect();
        Body::from_stream(stream::iter(pieces))
    }

    /// Pieces of that size for ever, one every ten seconds.
    fn drip(size: usize) -> Body {
        Body::from_stream(stream::unfold((), move |()| async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Some((Ok::<_, io::Error>(Bytes::from(vec![7; size])), ()))
        }))
    }

    async fn read(body: Body, limit: u64) -> Result<Bytes, ApiError> {
        collect(&HeaderMap::new(), body, (limit, PATIENCE), None).await.map(|(bytes, _)| bytes)
    }

    #[tokio::test]
    async fn a_body_at_its_limit_passes_and_one_byte_more_does_not() {
        for sizes in [&[10][..], &[4, 6], &[1; 10], &[0, 10, 0]] {
            assert_eq!(read(pieces(sizes), 10).await.unwrap().len(), 10, "{sizes:?}");
            let refused = read(pieces(sizes), 9).await.unwrap_err();
            assert_eq!(refused.detail().r#type, "body-too-large", "{sizes:?}");
        }
        assert!(read(Body::empty(), 0).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_spooled_body_is_read_from_its_beginning() {
        use std::io::Read as _;
        let (dir, budget) = (tempfile::tempdir().unwrap(), Budget::new(100, 1, "deploy_bodies"));
        let spool = |sizes: &[usize]| {
            let body = pieces(sizes);
            let (budget, dir) = (&budget, dir.path());
            async move { spool(&HeaderMap::new(), body, (6, PATIENCE), budget, dir).await }
        };
        let (mut file, _held) = spool(&[3, 3]).await.unwrap();
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert_eq!(all, [7; 6]);
        assert!(spool(&[3, 4]).await.is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn bodies_count_together_until_their_calls_are_over() {
        let budget = Budget::new(10, 3, "run_bodies");
        let read = |sizes: &[usize]| {
            let body = pieces(sizes);
            let budget = &budget;
            async move { collect(&HeaderMap::new(), body, (100, PATIENCE), Some(budget)).await }
        };
        let (_, first) = read(&[2, 2, 2]).await.unwrap();
        // However small, it is one.
        let (_, second) = read(&[1]).await.unwrap();
        let refused = read(&[1]).await.unwrap_err();
        assert_eq!(refused.detail().r#type, "busy");
        assert!(refused.detail().message.contains("run_bodies"), "{refused:?}");
        drop(first);
        // What is refused half-way leaves nothing taken.
        assert!(read(&[3, 3, 3]).await.is_err());
        let (bytes, third) = read(&[3, 4]).await.unwrap();
        assert_eq!(bytes.len(), 7);
        drop((second, third));
        assert_eq!(read(&[10]).await.unwrap().0.len(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up_and_a_slow_large_one_is_not() {
        let began = Instant::now();
        let refused = read(drip(1), 1 << 20).await.unwrap_err();
        assert_eq!(refused.detail().r#type, "slow-body");
        assert_eq!(began.elapsed(), PATIENCE);
        // Twelve seconds' worth every ten seconds: it ends only by its size.
        let refused = read(drip(12 << 16), 64 << 20).await.unwrap_err();
        assert_eq!(refused.detail().r#type, "body-too-large");
    }
}
