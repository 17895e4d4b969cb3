//! Reading bodies without ever holding more than allowed.
//!
//! A body that is too large is refused by its `Content-Length`, or as soon as it passes the limit. What the client
//! still sends is read and thrown away for a moment before the refusal: a client that is cut off while it writes sees
//! a broken connection and not the 413. One that waits for `100 Continue` is told at once.

use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;

use super::error::ApiError;

/// How long the rest of a refused body is read.
const DISCARD: Duration = Duration::from_secs(10);

/// Bodies up to this are read before anything else is done with their request.
const SMALL: u64 = 64 << 10;

/// Reads small bodies first. A request that is refused without reading its body has its connection closed when the body
/// comes later than the headers: the client would lose the refusal, or the next call on that connection.
pub(super) async fn read_small_first(request: Request, next: Next) -> Response {
    let length = announced(request.headers()).unwrap_or(0);
    if !(1..=SMALL).contains(&length) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match collect(&parts.headers, body, SMALL).await {
        Ok(bytes) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(error) => error.into_response(),
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads a body into memory.
pub(super) async fn collect(
    headers: &HeaderMap,
    mut body: Body,
    limit: u64,
) -> Result<Bytes, ApiError> {
    refuse_announced(headers, &mut body, limit).await?;
    let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
    let Some(second) = next_within(&mut body, first.len() as u64, limit).await? else {
        // The usual case, without copying.
        return within(first, limit, &mut body).await;
    };
    let mut all = Vec::with_capacity(first.len() + second.len());
    all.extend_from_slice(&first);
    all.extend_from_slice(&second);
    while let Some(piece) = next_within(&mut body, all.len() as u64, limit).await? {
        all.extend_from_slice(&piece);
    }
    Ok(Bytes::from(all))
}

/// Reads a body into an unnamed file in `dir`; returns the file at its beginning.
pub(super) async fn spool(
    headers: &HeaderMap,
    mut body: Body,
    limit: u64,
    dir: &Path,
) -> Result<std::fs::File, ApiError> {
    refuse_announced(headers, &mut body, limit).await?;
    let unwritable = |error: io::Error| {
        ApiError::internal(format!(
            "cannot store the upload: {error}; is there space in the state directory?"
        ))
    };
    let mut file = tempfile::tempfile_in(dir).map_err(unwritable)?;
    let mut length = 0;
    while let Some(piece) = next_within(&mut body, length, limit).await? {
        length += piece.len() as u64;
        // Into the page cache: short enough to do here.
        file.write_all(&piece).map_err(unwritable)?;
    }
    file.rewind().map_err(unwritable)?;
    Ok(file)
}

async fn within(piece: Bytes, limit: u64, body: &mut Body) -> Result<Bytes, ApiError> {
    if piece.len() as u64 > limit { Err(refuse(body, limit).await) } else { Ok(piece) }
}

async fn next_within(body: &mut Body, before: u64, limit: u64) -> Result<Option<Bytes>, ApiError> {
    match next(body).await? {
        Some(piece) if before + piece.len() as u64 > limit => Err(refuse(body, limit).await),
        piece => Ok(piece),
    }
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
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
    Ok(None)
}

async fn refuse_announced(
    headers: &HeaderMap,
    body: &mut Body,
    limit: u64,
) -> Result<(), ApiError> {
    match announced(headers) {
        Some(length) if length > limit && headers.contains_key(header::EXPECT) => {
            Err(too_large(limit))
        }
        Some(length) if length > limit => Err(refuse(body, limit).await),
        _ => Ok(()),
    }
}

async fn refuse(body: &mut Body, limit: u64) -> ApiError {
    let discard = async { while let Ok(Some(_)) = next(body).await {} };
    // When it takes longer, the client sees the connection close: it had its chance.
    drop(tokio::time::timeout(DISCARD, discard).await);
    too_large(limit)
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

    fn pieces(sizes: &[usize]) -> Body {
        let pieces: Vec<io::Result<Bytes>> =
            sizes.iter().map(|size| Ok(Bytes::from(vec![7; *size]))).collect();
        Body::from_stream(stream::iter(pieces))
    }

    #[tokio::test]
    async fn a_body_at_its_limit_passes_and_one_byte_more_does_not() {
        for sizes in [&[10][..], &[4, 6], &[1; 10], &[0, 10, 0]] {
            let read = collect(&HeaderMap::new(), pieces(sizes), 10).await.unwrap();
            assert_eq!(read.len(), 10, "{sizes:?}");
            let refused = collect(&HeaderMap::new(), pieces(sizes), 9).await.unwrap_err();
            assert_eq!(refused.detail().r#type, "body-too-large", "{sizes:?}");
        }
        assert!(collect(&HeaderMap::new(), Body::empty(), 0).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_spooled_body_is_read_from_its_beginning() {
        use std::io::Read as _;
        let dir = tempfile::tempdir().unwrap();
        let mut file = spool(&HeaderMap::new(), pieces(&[3, 3]), 6, dir.path()).await.unwrap();
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert_eq!(all, [7; 6]);
        assert!(spool(&HeaderMap::new(), pieces(&[3, 4]), 6, dir.path()).await.is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
