//! Where callers are asked who they are, before anything is done for them.
//!
//! The entrance says who asks and for what; `platform::access` decides. What it grants is taken along to the route, whose use
//! case takes it. That is asked here and not there so that nothing of a body is read before: a caller that may not ask could
//! otherwise keep a connection busy with one byte.

use std::sync::Arc;
use std::time::SystemTime;

use axum::RequestExt as _;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use sandbox::chain;

use super::act::Act;
use super::error::ApiError;
use super::{App, Door, actions, body, queries};
use crate::door::connections::Visit;
use function::Label;
use function::MAX_NAME;
use platform::access::{Action, Caller, Denied, Grant, Refusal, Remote, Requester, Scope, Secret};
use platform::audit::{self, UNANSWERED};

/// Names the tenant whose functions an administrator means.
pub const TENANT: HeaderName = HeaderName::from_static("lambswool-tenant");

/// What the door knows.
#[derive(Clone, Debug)]
pub(super) struct Entrance {
    pub(super) app: Arc<App>,
    pub(super) door: Door,
}

/// Lets a request through whose caller may do what it asks for. The handlers find the [`Grant`] among its extensions.
pub(super) async fn identify(
    State(entrance): State<Entrance>,
    mut request: Request,
    next: Next,
) -> Response {
    let visit = request.extensions().get::<Visit>().cloned();
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    // Not passed on: whatever were there would be in no table. Everybody may be told that nothing is.
    let Some(path) = path else {
        return turn_away(request, super::nothing_here().await.into_response()).await;
    };
    let Some(action) = actions::of(request.method(), &path) else {
        return match queries::check(request.method(), &path, request.uri()) {
            Ok(()) => next.run(body::arriving(request, visit)).await,
            Err(refusal) => turn_away(request, refusal.into_response()).await,
        };
    };
    let requester = match entrance.requester(&request, action) {
        Ok(requester) => requester,
        Err(refused) => return turn_away(request, refused.into_response()).await,
    };
    let act = entrance.begin(&mut request, &path, action, &requester).await;
    let response = match admit(&mut request, &path, action, requester).await {
        Err(refusal) => {
            let refusal = refusal.into_response();
            // Not later: its connection may have to leave while it is turned away, and the line would say that it was not
            // answered, as of what may have been done.
            if let Some(act) = &act {
                act.answered(&refusal);
            }
            turn_away(request, refusal).await
        }
        Ok(grant) => {
            if let (Some(visit), true) = (&visit, grant.requester().caller.is_known()) {
                visit.admit();
            }
            request.extensions_mut().insert(grant);
            if let Some(act) = &act {
                request.extensions_mut().insert(Arc::clone(act));
            }
            next.run(body::arriving(request, visit)).await
        }
    };
    if let Some(act) = act {
        act.answered(&response);
    }
    response
}

/// The refusal, once what the client still sends is read, for a moment: cut off while it writes, it would not see it.
async fn turn_away(request: Request, refusal: Response) -> Response {
    body::discard(request).await;
    refusal
}

/// The tenant that is meant: the token's, unless the request names another.
fn meant(headers: &HeaderMap, caller: &Caller) -> Result<Label, ApiError> {
    let Some(said) = headers.get(&TENANT) else {
        return Ok(caller.tenant().unwrap_or_else(Label::default_tenant));
    };
    let said = said.to_str().unwrap_or_default().parse();
    said.map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "bad-name", chain(&error)))
}

/// Asks for the action, about the function in the path.
async fn admit(
    request: &mut Request,
    path: &str,
    action: Action,
    requester: Requester,
) -> Result<Grant, ApiError> {
    let function = parameter(request, "name").await;
    let grant = requester.admit(action, function)?;
    // Not before: a caller that may not ask learns nothing of what could be asked.
    queries::check(request.method(), path, request.uri())?;
    Ok(grant)
}

/// A part of the path.
async fn parameter(request: &mut Request, wanted: &str) -> Option<String> {
    let all = request.extract_parts::<RawPathParams>().await.ok()?;
    all.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value.to_owned())
}

impl Entrance {
    /// The audit line of what is asked for, if that changes something or is another tenant's.
    async fn begin(
        &self,
        request: &mut Request,
        path: &str,
        action: Action,
        requester: &Requester,
    ) -> Option<Arc<Act>> {
        let action = match action.audited() {
            Some(action) => action.to_owned(),
            None => format!("{} {path}", requester.stranger_to().map(|_| request.method())?),
        };
        let Requester { caller, tenant } = requester;
        let remote = request.extensions().get::<Remote>().map(ToString::to_string);
        let subject = match parameter(request, "key").await {
            Some(key) => Some(key),
            None => parameter(request, "token").await,
        };
        let line = audit::Action {
            time: String::new(),
            who: caller.into(),
            remote: remote.unwrap_or_default(),
            tenant: tenant.to_string(),
            action,
            function: parameter(request, "name").await.map(|name| cut(&name)),
            version: None,
            subject: subject.map(|subject| cut(&subject)),
            result: UNANSWERED.to_owned(),
        };
        Some(Act::begin(Arc::clone(&self.app.audit), caller.into(), line))
    }

    /// Who asks, and whose functions are meant. What is refused here leaves no audit line: strangers could push out the lines
    /// of others (decision 11).
    fn requester(&self, request: &Request, action: Action) -> Result<Requester, Refused> {
        let caller = self.caller(request, action.scope())?;
        let tenant = meant(request.headers(), &caller).map_err(Refused::Tenant)?;
        Ok(Requester { caller, tenant })
    }

    fn caller(&self, request: &Request, scope: Scope) -> Result<Caller, Refused> {
        let peer = match self.door {
            Door::Unix => Some(self.peer(request)?),
            Door::Loopback | Door::Network => None,
        };
        // A token counts on the socket, too: a client that sends one means to do no more than it allows.
        if let Some(shown) = bearer(request.headers()) {
            return match shown.map(|secret| self.app.tokens.find(&secret, SystemTime::now())) {
                Some(Ok(token)) => Ok(Caller::Token(token)),
                Some(Err(Refusal::Expired)) => Err(Refused::Expired),
                None if !is_bearer(request.headers()) => Err(Refused::NoBearer),
                Some(Err(Refusal::Unknown)) | None => Err(Refused::Unknown),
            };
        }
        match peer {
            Some(uid) => Ok(Caller::User { uid }),
            None if self.is_open() && Caller::Anyone.may(scope) => Ok(Caller::Anyone),
            None => Err(Refused::NoToken(scope)),
        }
    }

    fn is_open(&self) -> bool {
        self.door == Door::Loopback && self.app.settings.tokens.lets_anyone_call(&self.app.tokens)
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

/// The token in the one `Authorization` header: none when there is no such header, `Some(None)` when it holds no token.
fn bearer(headers: &HeaderMap) -> Option<Option<Secret>> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let first = all.next()?;
    // Two of them: which one is meant?
    if all.next().is_some() {
        return Some(None);
    }
    let text = first.to_str().unwrap_or_default();
    let (scheme, rest) = text.split_once(' ').unwrap_or_default();
    Some(scheme.eq_ignore_ascii_case("bearer").then(|| Secret::read(rest)).flatten())
}

/// Whether every `Authorization` header is of the scheme that tokens have.
fn is_bearer(headers: &HeaderMap) -> bool {
    headers.get_all(header::AUTHORIZATION).iter().all(|text| {
        let scheme = text.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"bearer")
    })
}

/// As much of a name as any good one has.
fn cut(name: &str) -> String {
    name.chars().take(2 * MAX_NAME).collect()
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        let (status, kind) = match &denied {
            Denied::WrongTenant { .. } => (StatusCode::FORBIDDEN, "wrong-tenant"),
            Denied::WrongScope { .. } => (StatusCode::FORBIDDEN, "wrong-scope"),
            Denied::WrongFunction { .. } => (StatusCode::FORBIDDEN, "wrong-function"),
        };
        Self::new(status, kind, denied.to_string())
    }
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
    /// The tenant's name is none.
    Tenant(ApiError),
}

impl Refused {
    fn into_response(self) -> Response {
        if !matches!(self, Self::Tenant(_)) {
            metrics::counter!("lambswool_unauthorized_total").increment(1);
        }
        match self {
            Self::Tenant(error) => error.into_response(),
            Self::NoToken(scope) => unauthorized(&format!(
                "a token with the scope {scope} is needed: make one on the worker's machine with `wool token create NAME --scope {scope}`, and send it as `Authorization: Bearer wool_…`, or give it to `wool` in WOOL_TOKEN or --token-file; the worker's Unix socket takes none: use `wool` without --url there, or `curl --unix-socket STATE/run/wool.sock`"
            )),
            Self::NoBearer => unauthorized(
                "the header Authorization holds no token: write `Bearer` and a blank before it, as in `Authorization: Bearer wool_…`",
            ),
            Self::Unknown => unauthorized(
                "this is no token of this worker: it was mistyped, or removed; make one on the worker's machine with `wool token create NAME --scope …`",
            ),
            Self::Expired => unauthorized(
                "this token has expired: make another on the worker's machine with `wool token create NAME --scope …`",
            ),
            Self::Stranger(uid) => {
                let who = uid.map_or_else(|| "whoever asks".to_owned(), |uid| format!("uid {uid}"));
                let message = format!(
                    "{who} may not use the worker's socket: it is for the worker's own user, root, and the members of the group `admin_group`"
                );
                ApiError::new(StatusCode::FORBIDDEN, "stranger", message).into_response()
            }
        }
    }
}

fn unauthorized(message: &str) -> Response {
    let error = ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message);
    let mut response = error.into_response();
    let headers = response.headers_mut();
    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
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
        let read = |values: &[&str]| bearer(&headers(values)).map(|found| found.is_some());
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[&good]), Some(true));
        assert_eq!(read(&[&good.replace("Bearer", "bearer")]), Some(true));
        for bad in ["Bearer", "Bearer ", "Basic YTpi", "Bearer wool_x", token.reveal()] {
            assert_eq!(read(&[bad]), Some(false), "{bad}");
        }
        assert_eq!(read(&[&good, &good]), Some(false));
        for (value, is) in [("Bearer wool_x", true), ("bearer", true), (token.reveal(), false)] {
            assert_eq!(is_bearer(&headers(&[value])), is, "{value}");
        }
    }
}
