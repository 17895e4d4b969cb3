//! Reads bodies within limits of size, memory and time.
//!
//! A body that is too large is refused by its `Content-Length`, or as soon as it passes the limit. What
//! the client still sends is read and thrown away for a moment before the refusal: a client that is cut
//! off while it writes sees a broken connection and not the 413. A client that waits for `100 Continue`
//! is told at once.
//!
//! What has been read counts against a budget until its call is over: a thousand bodies below their
//! limit are too many, too. A body that comes too slowly, or stops coming, is given up: one without its
//! last byte would otherwise hold memory for nothing.

use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, SizeHint};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::budget::{Budgets, Held};
use crate::App;
use crate::door::connections::Visit;
use crate::error::ApiError;
use platform::access::Grant;

/// How long the rest of a refused body is read.
const DISCARD: Duration = Duration::from_secs(10);

/// Bodies up to this are read before anything else is done with their request.
const SMALL: u64 = 64 << 10;

/// Bytes a second below which a body is too slow, once its client has had its time.
const SLOWEST: u64 = 64 << 10;

/// How long nothing of a body may come, where its client does not have less time for all of it.
const PAUSE: Duration = Duration::from_secs(10);

/// What a body may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// How many bytes, at most.
    pub(crate) bytes: u64,
    /// The setting that allows more, where one does.
    pub(crate) setting: Option<&'static str>,
    /// How long its client may say nothing.
    pub(crate) patience: Duration,
}

impl From<(u64, Duration)> for Allowed {
    fn from((bytes, patience): (u64, Duration)) -> Self {
        Self { bytes, setting: None, patience }
    }
}

/// A body on its way in.
struct Incoming {
    body: Body,
    allowed: Allowed,
    read: u64,
    began: Instant,
    /// None when it is counted already.
    held: Option<Held>,
}

impl Incoming {
    async fn begin(
        headers: &HeaderMap,
        body: Body,
        allowed: Allowed,
        held: Option<Held>,
    ) -> Result<Self, ApiError> {
        let began = Instant::now();
        let mut this = Self { body, allowed, read: 0, began, held };
        match announced(headers) {
            Some(length) if length > allowed.bytes && headers.contains_key(header::EXPECT) => {
                return Err(too_large(allowed, length));
            }
            Some(length) if length > allowed.bytes => {
                return Err(this.refuse(too_large(allowed, length)).await);
            }
            _ => {}
        }
        this.count().await?;
        Ok(this)
    }

    async fn count(&mut self) -> Result<(), ApiError> {
        match self.held.as_mut().map_or(Ok(()), |held| held.grow_to(self.read)) {
            Ok(()) => Ok(()),
            Err(exceeded) => Err(self.refuse(exceeded).await),
        }
    }

    /// The next piece of it, which is counted.
    async fn piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        let Some(piece) = self.next().await? else { return Ok(None) };
        self.read += piece.len() as u64;
        if self.read > self.allowed.bytes {
            return Err(self.refuse(too_large(self.allowed, self.read)).await);
        }
        self.count().await?;
        Ok(Some(piece))
    }

    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let until = self.began + self.allowed.patience + Duration::from_secs(self.read / SLOWEST);
        let pause = self.allowed.patience.min(PAUSE);
        let goes_on = Instant::now() + pause;
        loop {
            let frame = timeout_at(until.min(goes_on), self.body.frame()).await;
            let late = |_| if until < goes_on { self.slow() } else { self.stopped(pause) };
            let frame = frame.map_err(late)?;
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

    fn stopped(&self, pause: Duration) -> ApiError {
        let message = format!(
            "nothing of the body came for {} s: send it without pauses, or call again when all of it is there",
            pause.as_secs_f32()
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
}

/// Makes the request's connection busy once its body is complete: an unknown caller keeps no seat with half a request.
pub(crate) fn arriving(request: Request) -> Request {
    let Some(visit) = request.extensions().get::<Visit>().cloned() else { return request };
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
pub(crate) async fn discard(request: Request) {
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
pub(crate) async fn read_small_first(
    State(app): State<Arc<App>>,
    Extension(budgets): Extension<Budgets>,
    request: Request,
    next: Next,
) -> Response {
    let length = announced(request.headers()).unwrap_or(0);
    if !(1..=SMALL).contains(&length) {
        return next.run(request).await;
    }
    // A route that asks for no caller has no tenant.
    let grant = request.extensions().get::<Grant>();
    let held = budgets.run.hold(grant.map_or("", |grant| grant.requester().tenant.as_str()));
    let (mut parts, body) = request.into_parts();
    let allowed = (SMALL, app.settings.client_timeout.0);
    match collect(&parts.headers, body, allowed, Some(held)).await {
        Ok((bytes, held)) => {
            parts.extensions.insert(Arc::new(held));
            next.run(Request::from_parts(parts, Body::from(bytes))).await
        }
        Err(error) => error.into_response(),
    }
}

/// The whole body of a request that takes so many bytes at most. It counts as it is held here, and once: what was read first
/// is counted already.
#[derive(Debug)]
pub(crate) struct Small<const BYTES: u64> {
    /// What the request brought, all of it.
    pub(crate) bytes: Bytes,
    _counted: Option<Arc<Held>>,
    _held: Option<Held>,
}

impl<const BYTES: u64> FromRequest<Arc<App>> for Small<BYTES> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let counted = parts.extensions.get::<Arc<Held>>().cloned();
        let tenant =
            parts.extensions.get::<Grant>().map_or("", |grant| grant.requester().tenant.as_str());
        let budgets = parts.extensions.get::<Budgets>().filter(|_| counted.is_none());
        let held = budgets.map(|budgets| budgets.run.hold(tenant));
        let allowed = (BYTES, app.settings.client_timeout.0);
        let (bytes, held) = collect(&parts.headers, body, allowed, held).await?;
        Ok(Self { bytes, _counted: counted, _held: held })
    }
}

impl<const BYTES: u64> Small<BYTES> {
    /// What the body says, as JSON; nothing, where it is empty or `null`.
    ///
    /// # Errors
    /// Those of the JSON.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> serde_json::Result<Option<T>> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&self.bytes)
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads a body of at most that many bytes into memory, within that time and more for what comes. It counts as
/// what is `held` for it, until that is dropped; none: it is counted already.
pub(crate) async fn collect(
    headers: &HeaderMap,
    body: Body,
    allowed: impl Into<Allowed>,
    held: Option<Held>,
) -> Result<(Bytes, Option<Held>), ApiError> {
    let mut body = Incoming::begin(headers, body, allowed.into(), held).await?;
    let Some(first) = body.piece().await? else { return Ok((Bytes::new(), body.held)) };
    let Some(second) = body.piece().await? else {
        // The usual case, without copying.
        return Ok((first, body.held));
    };
    let mut all = Vec::with_capacity(first.len() + second.len());
    all.extend_from_slice(&first);
    all.extend_from_slice(&second);
    while let Some(piece) = body.piece().await? {
        all.extend_from_slice(&piece);
    }
    Ok((Bytes::from(all), body.held))
}

/// Reads a body into an unnamed file in `dir`, as [`collect`] does into memory; returns the file at its beginning.
pub(crate) async fn spool(
    headers: &HeaderMap,
    body: Body,
    allowed: impl Into<Allowed>,
    held: Held,
    dir: &Path,
) -> Result<(std::fs::File, Option<Held>), ApiError> {
    let mut body = Incoming::begin(headers, body, allowed.into(), Some(held)).await?;
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
    Ok((file, body.held))
}

/// `counted` bytes were announced, or have come.
fn too_large(allowed: Allowed, counted: u64) -> ApiError {
    let limit = function::quantity::Bytes(allowed.bytes);
    let message = match allowed.setting {
        Some(setting) => format!(
            "the body is larger than {limit} ({counted} bytes are counted so far): send less, or raise `{setting}` in the worker's configuration"
        ),
        None => {
            format!(
                "the body is larger than {limit} ({counted} bytes are counted so far), which is as much as it may be: send less"
            )
        }
    };
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", message)
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};

    use platform::limits::shares::Shares;

    use super::super::budget::Budget;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn pieces(sizes: &[usize]) -> Body {
        let pieces: Vec<io::Result<Bytes>> =
            sizes.iter().map(|size| Ok(Bytes::from(vec![7; *size]))).collect();
        Body::from_stream(stream::iter(pieces))
    }

    /// Pieces of that size for ever, one after each such pause.
    fn drip(size: usize, pause: u64) -> Body {
        Body::from_stream(stream::unfold((), move |()| async move {
            tokio::time::sleep(Duration::from_secs(pause)).await;
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
        // What is advised is what would help.
        let told = read(pieces(&[10]), 9).await.unwrap_err().detail().message.clone();
        assert!(!told.contains("raise"), "{told}");
        let allowed = Allowed { setting: Some("run_body"), ..Allowed::from((9, PATIENCE)) };
        let refused = collect(&HeaderMap::new(), pieces(&[10]), allowed, None).await;
        let told = refused.unwrap_err().detail().message.clone();
        assert!(told.contains("raise `run_body` in"), "{told}");
    }

    #[tokio::test]
    async fn a_spooled_body_is_read_from_its_beginning() {
        use std::io::Read as _;
        let (dir, budget) =
            (tempfile::tempdir().unwrap(), Budget::new(Shares::new(100), 1, "used up"));
        let spool = |sizes: &[usize]| {
            let body = pieces(sizes);
            let (held, dir) = (budget.hold("acme"), dir.path());
            async move { spool(&HeaderMap::new(), body, (6, PATIENCE), held, dir).await }
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
        let budget = Budget::new(Shares::new(10), 3, "used up");
        let read = |tenant: &str, sizes: &[usize]| {
            let (body, held) = (pieces(sizes), Some(budget.hold(tenant)));
            async move { collect(&HeaderMap::new(), body, (100, PATIENCE), held).await }
        };
        let (_, first) = read("acme", &[2, 2, 2]).await.unwrap();
        // However small, it is one.
        let (_, second) = read("zeta", &[1]).await.unwrap();
        let refused = read("beta", &[1]).await.unwrap_err();
        assert_eq!(refused.detail().r#type, "busy");
        assert!(refused.detail().message.contains("used up"), "{refused:?}");
        drop(first);
        // What is refused half-way leaves nothing taken.
        assert!(read("acme", &[3, 3, 3]).await.is_err());
        let (bytes, third) = read("acme", &[3, 4]).await.unwrap();
        assert_eq!(bytes.len(), 7);
        drop((second, third));
        assert_eq!(read("acme", &[10]).await.unwrap().0.len(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up_and_a_slow_large_one_is_not() {
        let began = Instant::now();
        let refused = read(drip(1, 9), 1 << 20).await.unwrap_err();
        assert_eq!(refused.detail().r#type, "slow-body");
        assert_eq!(began.elapsed(), PATIENCE);
        // Twelve seconds' worth every nine seconds: it ends only by its size.
        let refused = read(drip(12 << 16, 9), 64 << 20).await.unwrap_err();
        assert_eq!(refused.detail().r#type, "body-too-large");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_lacks_its_last_byte_is_given_up_soon_however_much_has_come() {
        let whole_but_one = || pieces(&[6 << 20]).into_data_stream();
        let body = Body::from_stream(whole_but_one().chain(stream::pending()));
        let began = Instant::now();
        let refused = read(body, 64 << 20).await.unwrap_err();
        assert_eq!(refused.detail().r#type, "slow-body");
        assert!(refused.detail().message.contains("without pauses"), "{refused:?}");
        assert_eq!(began.elapsed(), PAUSE);
        // Who has less time for all of it has no more for a pause.
        let (body, patience) =
            (Body::from_stream(whole_but_one().chain(stream::pending())), Duration::from_secs(3));
        let began = Instant::now();
        collect(&HeaderMap::new(), body, (64 << 20, patience), None).await.unwrap_err();
        assert_eq!(began.elapsed(), patience);
    }
}
