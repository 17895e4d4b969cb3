//! Where callers are asked who they are, before anything is done for them.
//!
//! The entrance says who asks; an API says for what, and `platform::access` decides.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use sandbox::chain;

use super::{Act, body};
use crate::door::connections::Visit;
use crate::error::ApiError;
use crate::{App, Listener};
use function::Label;
use function::MAX_NAME;
use platform::access::{Caller, Refusal, Remote, Requester, Scope, Secret};
use platform::audit::{self, UNANSWERED};

/// Names the tenant whose functions an administrator means.
pub const TENANT: HeaderName = HeaderName::from_static("lambswool-tenant");

/// Where requests come in.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    pub(crate) app: Arc<App>,
    pub(crate) listener: Listener,
}

/// The token that a request shows.
#[derive(Debug)]
pub(crate) enum Shown {
    /// The request shows no token.
    Nothing,
    /// One of the form that tokens have.
    Token(Secret),
    /// Something in its place that no token is.
    Unreadable,
    /// A header of another scheme.
    OtherScheme,
}

/// What the audit log says was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The action, in words.
    pub(crate) action: String,
    /// The function that it is about.
    pub(crate) function: Option<String>,
    /// What else it is about.
    pub(crate) subject: Option<String>,
}

/// The refusal, once what the client still sends is read, for a moment: cut off while it writes, it would not see it.
pub(crate) async fn turn_away(request: Request, refusal: ApiError) -> Response {
    body::discard(request).await;
    refusal.into_response()
}

/// The tenant that is meant: the token's, unless the request names another.
fn meant(headers: &HeaderMap, caller: &Caller) -> Result<Label, ApiError> {
    let Some(said) = headers.get(&TENANT) else {
        return Ok(caller.tenant().unwrap_or_else(Label::default_tenant));
    };
    let said = said.to_str().unwrap_or_default().parse();
    said.map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "bad-name", chain(&error)))
}

impl Entrance {
    /// Who asks, and whose functions are meant; `shown` is the token that came along. What is refused here leaves no audit
    /// line: strangers could push out the lines of others (decision 11).
    pub(crate) fn requester(
        &self,
        request: &Request,
        scope: Scope,
        shown: Shown,
    ) -> Result<Requester, ApiError> {
        let caller = self.caller(request, scope, shown).inspect_err(|_| {
            metrics::counter!("lambswool_unauthorized_total").increment(1);
        })?;
        let tenant = meant(request.headers(), &caller)?;
        Ok(Requester { caller, tenant })
    }

    /// Makes the connection of a known caller busy, before all of its request is there.
    pub(crate) fn welcome(&self, request: &Request, requester: &Requester) {
        if let (Some(visit), true) =
            (request.extensions().get::<Visit>(), requester.caller.is_known())
        {
            visit.admit();
        }
    }

    /// Begins the audit line of what is asked for.
    pub(crate) fn begin(&self, request: &Request, requester: &Requester, asked: Asked) -> Arc<Act> {
        let Requester { caller, tenant } = requester;
        let remote = request.extensions().get::<Remote>().map(ToString::to_string);
        let line = audit::Action {
            time: String::new(),
            who: caller.into(),
            remote: remote.unwrap_or_default(),
            tenant: tenant.to_string(),
            action: asked.action,
            function: asked.function.as_deref().map(cut),
            version: None,
            subject: asked.subject.as_deref().map(cut),
            result: UNANSWERED.to_owned(),
        };
        Act::begin(Arc::clone(&self.app.audit), caller.into(), line)
    }

    fn caller(&self, request: &Request, scope: Scope, shown: Shown) -> Result<Caller, Refused> {
        let peer = match self.listener {
            Listener::Unix => Some(self.peer(request)?),
            Listener::Loopback | Listener::Network => None,
        };
        // A token counts on the socket, too: a client that sends one means to do no more than it allows.
        match shown {
            Shown::Token(secret) => match self.app.tokens.find(&secret, SystemTime::now()) {
                Ok(token) => Ok(Caller::Token(token)),
                Err(Refusal::Expired) => Err(Refused::Expired),
                Err(Refusal::Unknown) => Err(Refused::Unknown),
            },
            Shown::Unreadable => Err(Refused::Unknown),
            Shown::OtherScheme => Err(Refused::NoBearer),
            Shown::Nothing => match peer {
                Some(uid) => Ok(Caller::User { uid }),
                None if self.is_open() && Caller::Anyone.may(scope) => Ok(Caller::Anyone),
                None => Err(Refused::NoToken(scope)),
            },
        }
    }

    fn is_open(&self) -> bool {
        self.listener == Listener::Loopback
            && self.app.settings.tokens.lets_anyone_call(&self.app.tokens)
    }

    fn peer(&self, request: &Request) -> Result<u32, Refused> {
        let peer = match request.extensions().get() {
            Some(Remote::Unix(peer)) => Some(peer),
            _ => None,
        };
        let admitted = peer.filter(|peer| self.app.admitted.lets_in(peer));
        let uid = admitted.and_then(|peer| peer.uid);
        uid.ok_or_else(|| Refused::Stranger(peer.and_then(|peer| peer.uid)))
    }
}

/// The token in the one `Authorization` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Shown {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(first) = all.next() else { return Shown::Nothing };
    let scheme = |text: &HeaderValue| {
        let scheme = text.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"bearer")
    };
    if !headers.get_all(header::AUTHORIZATION).iter().all(scheme) {
        return Shown::OtherScheme;
    }
    // Two of them: which one is meant?
    if all.next().is_some() {
        return Shown::Unreadable;
    }
    let text = first.to_str().unwrap_or_default();
    let secret = text.split_once(' ').and_then(|(_, rest)| Secret::read(rest));
    secret.map_or(Shown::Unreadable, Shown::Token)
}

/// As much of a name as any good one has.
fn cut(name: &str) -> String {
    name.chars().take(2 * MAX_NAME).collect()
}

/// Why a caller was not let in.
#[derive(Debug)]
enum Refused {
    /// The token that is missing needs this scope.
    NoToken(Scope),
    /// The header is of another form.
    NoBearer,
    Unknown,
    Expired,
    Stranger(Option<u32>),
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoToken(scope) => Self::unauthorized(format!(
                "a token with the scope {scope} is needed: make one on the worker's machine with `wool token create NAME --scope {scope}`, and send it as `Authorization: Bearer wool_…`, or give it to `wool` in WOOL_TOKEN or --token-file; the worker's Unix socket takes none: use `wool` without --url there, or `curl --unix-socket STATE/run/wool.sock`"
            )),
            Refused::NoBearer => Self::unauthorized(
                "the header Authorization holds no token: write `Bearer` and a blank before it, as in `Authorization: Bearer wool_…`",
            ),
            Refused::Unknown => Self::unauthorized(
                "this is no token of this worker: it was mistyped, or removed; make one on the worker's machine with `wool token create NAME --scope …`",
            ),
            Refused::Expired => Self::unauthorized(
                "this token has expired: make another on the worker's machine with `wool token create NAME --scope …`",
            ),
            Refused::Stranger(uid) => {
                let who = uid.map_or_else(|| "this user".to_owned(), |uid| format!("uid {uid}"));
                let message = format!(
                    "{who} may not use the worker's socket: it is for the worker's own user, root, and the members of the group `admin_group`"
                );
                Self::new(StatusCode::FORBIDDEN, "stranger", message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_one_bearer_token_is_read_and_anything_else_is_no_token() {
        let token = Secret::draw().unwrap();
        let good = format!("Bearer {}", token.reveal());
        let read = |values: &[&str]| bearer(&headers(values));
        assert!(matches!(read(&[]), Shown::Nothing));
        assert!(matches!(read(&[&good]), Shown::Token(_)));
        assert!(matches!(read(&[&good.replace("Bearer", "bearer")]), Shown::Token(_)));
        for bad in ["Bearer", "Bearer ", "Bearer wool_x", "bearer"] {
            assert!(matches!(read(&[bad]), Shown::Unreadable), "{bad}");
        }
        for other in ["Basic YTpi", token.reveal()] {
            assert!(matches!(read(&[other]), Shown::OtherScheme), "{other}");
        }
        assert!(matches!(read(&[&good, &good]), Shown::Unreadable));
    }
}
