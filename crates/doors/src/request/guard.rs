//! Keeps web pages out of a door that every browser on the machine can reach.
//!
//! While calls take no token, a page from anywhere could have its visitor's browser call `http://127.0.0.1:8470/run/…`, and one
//! whose name is made to resolve to 127.0.0.1 could even read the answers. A browser says where a request comes from
//! (`Origin`, `Sec-Fetch-Site`) and whom it believes to talk to (`Host`): both must be this machine.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::error::ApiError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Passes on what no foreign page sent.
pub(crate) async fn refuse_foreign_pages(request: Request, next: Next) -> Response {
    match check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Refuses what a page of another site sent, or what names another host.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), ApiError> {
    if admitted(headers) {
        return Ok(());
    }
    let message = "refused: the request comes from a web page of another site, or names a host that is not this machine; use http://127.0.0.1 or http://localhost";
    Err(ApiError::new(StatusCode::FORBIDDEN, "foreign-origin", message))
}

/// Every value counts, not the first alone: a second one must not hide a foreign origin.
fn admitted(headers: &HeaderMap) -> bool {
    let all = |name, local: fn(&str) -> bool| {
        headers.get_all(name).iter().all(|value| value.to_str().is_ok_and(local))
    };
    let same_site = |site: &str| site != "cross-site";
    all(header::HOST, is_local)
        && all(header::ORIGIN, is_local_origin)
        && all(SEC_FETCH_SITE, same_site)
}

fn is_local_origin(origin: &str) -> bool {
    origin
        .parse::<Uri>()
        .is_ok_and(|uri| uri.authority().is_some_and(|authority| is_local(authority.as_str())))
}

/// Whether `host` or `host:port` is this machine's loopback.
fn is_local(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    loopback || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted_with(pairs: &[(&'static str, &'static str)]) -> bool {
        admitted(&pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect())
    }

    #[test]
    fn programs_and_local_pages_are_let_in() {
        for host in
            ["127.0.0.1:8470", "localhost:1", "[::1]:8470", "[::1]", "127.8.8.8", "LOCALHOST"]
        {
            assert!(is_local(host), "{host}");
        }
        assert!(admitted_with(&[]));
        assert!(admitted_with(&[("host", "127.0.0.1:8470")]));
        assert!(admitted_with(&[("host", "localhost:8470"), ("origin", "http://localhost:3000")]));
    }

    #[test]
    fn a_page_of_another_site_is_kept_out() {
        assert!(!admitted_with(&[("host", "127.0.0.1:8470"), ("origin", "https://evil.example")]));
        assert!(!admitted_with(&[("host", "127.0.0.1:8470"), ("origin", "null")]));
        assert!(!admitted_with(&[("host", "127.0.0.1:8470"), ("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn a_name_made_to_resolve_to_this_machine_is_kept_out() {
        for host in
            ["evil.example:8470", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0"]
        {
            assert!(!admitted_with(&[("host", host)]), "{host}");
        }
    }
}
