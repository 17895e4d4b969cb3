//! Where callers are asked who they are, before anything is done for them.

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
use super::needs::Need;
use super::{App, Asked, Door, body, needs, queries};
use crate::door::connections::Visit;
use function::Label;
use function::MAX_NAME;
use platform::access::{Caller, Refusal, Remote, Secret};
use platform::audit::{Action, UNANSWERED};

/// Names the tenant whose functions an administrator means.
pub const TENANT: HeaderName = HeaderName::from_static("lambswool-tenant");

/// What the door knows.
#[derive(Clone, Debug)]
pub(super) struct Entrance {
    pub(super) app: Arc<App>,
    pub(super) door: Door,
}

/// Lets a request through whose caller may do what it asks for. The handlers find who asked, [`Asked`], among its extensions.
///
/// Nothing of a body is read before: who is nobody could otherwise keep a connection busy with one byte.
pub(super) async fn identify(
    State(entrance): State<Entrance>,
    mut request: Request,
    next: Next,
) -> Response {
    let visit = request.extensions().get::<Visit>().cloned();
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    // Not passed on: whatever were there would be in no table of needs. Everybody may be told that nothing is.
    let Some(path) = path else {
        return turn_away(request, super::nothing_here().await.into_response()).await;
    };
    let need = needs::of(request.method(), &path);
    let Some(scope) = need.scope() else {
        return match queries::check(request.method(), &path, request.uri()) {
            Ok(()) => next.run(body::arriving(request, visit)).await,
            Err(refusal) => turn_away(request, refusal.into_response()).await,
        };
    };
    let caller = match entrance.caller(&request) {
        Ok(caller) => caller,
        Err(refusal) => return turn_away(request, refusal.into_response()).await,
    };
    if matches!(caller, Caller::Anyone) && !need.is_met_by(&caller) {
        let refusal = unauthorized(&format!(
            "this takes a token with the scope {scope}, or the worker's Unix socket: make a token with `wool token create NAME --scope {scope}`"
        ));
        return turn_away(request, refusal).await;
    }
    let tenant = match meant(request.headers(), &caller) {
        Ok(tenant) => tenant,
        Err(refusal) => return turn_away(request, refusal.into_response()).await,
    };
    let asked = Asked { caller, tenant };
    let act = entrance.begin(&mut request, &path, &asked).await;
    let refused = match refusal(&mut request, need, &asked).await {
        // Not before: who may not ask learns nothing of what could be asked.
        None => queries::check(request.method(), &path, request.uri()).err(),
        refused => refused,
    };
    let response = match refused {
        Some(refusal) => {
            let refusal = refusal.into_response();
            // Not later: its connection may have to leave while it is turned away, and the line would say that it was not
            // answered, as of what may have been done.
            if let Some(act) = &act {
                act.answered(&refusal);
            }
            turn_away(request, refusal).await
        }
        None => {
            if let (Some(visit), true) = (&visit, asked.caller.is_known()) {
                visit.admit();
            }
            request.extensions_mut().insert(asked);
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

/// Whose functions are meant: those of the token's tenant, unless somebody else's are named.
fn meant(headers: &HeaderMap, caller: &Caller) -> Result<Label, ApiError> {
    let Some(said) = headers.get(&TENANT) else {
        return Ok(caller.tenant().unwrap_or_else(Label::default_tenant));
    };
    let said = said.to_str().unwrap_or_default().parse();
    said.map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "bad-name", chain(&error)))
}

/// Why a caller who is known may not do this.
async fn refusal(request: &mut Request, need: Need, asked: &Asked) -> Option<ApiError> {
    let Asked { caller, tenant } = asked;
    if let Some(own) = stranger_to(asked) {
        let message = format!("{caller} is of the tenant {own}, and says nothing for {tenant}");
        return Some(ApiError::new(StatusCode::FORBIDDEN, "wrong-tenant", message));
    }
    if let Some(scope) = need.scope().filter(|_| !need.is_met_by(caller)) {
        let message = format!(
            "{caller} may not do this: it takes the scope {scope}; make a token that has it with `wool token create NAME --scope {scope}`"
        );
        return Some(ApiError::new(StatusCode::FORBIDDEN, "wrong-scope", message));
    }
    let name = parameter(request, "name").await?;
    if caller.may_touch(&name) {
        return None;
    }
    let message =
        format!("{caller} is not for the function {name:?}: it was made with --functions");
    Some(ApiError::new(StatusCode::FORBIDDEN, "wrong-function", message))
}

/// The caller's own tenant, when another's functions are meant.
fn stranger_to(asked: &Asked) -> Option<Label> {
    asked.caller.tenant().filter(|own| *own != asked.tenant)
}

/// A part of the path.
async fn parameter(request: &mut Request, wanted: &str) -> Option<String> {
    let all = request.extract_parts::<RawPathParams>().await.ok()?;
    all.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value.to_owned())
}

impl Entrance {
    /// The audit line of what is asked for, if that changes something or is another tenant's.
    async fn begin(&self, request: &mut Request, path: &str, asked: &Asked) -> Option<Arc<Act>> {
        let action = match needs::action(request.method(), path) {
            Some(action) => action.to_owned(),
            None => format!("{} {path}", stranger_to(asked).map(|_| request.method())?),
        };
        let remote = request.extensions().get::<Remote>().map(ToString::to_string);
        let subject = match parameter(request, "key").await {
            Some(key) => Some(key),
            None => parameter(request, "token").await,
        };
        let line = Action {
            time: String::new(),
            who: (&asked.caller).into(),
            remote: remote.unwrap_or_default(),
            tenant: asked.tenant.to_string(),
            action,
            function: parameter(request, "name").await.map(|name| cut(&name)),
            version: None,
            subject: subject.map(|subject| cut(&subject)),
            result: UNANSWERED.to_owned(),
        };
        Some(Act::begin(Arc::clone(&self.app.audit), (&asked.caller).into(), line))
    }

    fn caller(&self, request: &Request) -> Result<Caller, Refused> {
        let peer = match self.door {
            Door::Unix => Some(self.peer(request)?),
            Door::Loopback | Door::Network => None,
        };
        // Who shows a token is its owner to us, on the socket, too: nobody who hands one over means to do more.
        if let Some(shown) = bearer(request.headers()) {
            return match shown.map(|secret| self.app.tokens.find(&secret, SystemTime::now())) {
                Some(Ok(token)) => Ok(Caller::Token(token)),
                Some(Err(Refusal::Expired)) => Err(Refused::Expired),
                Some(Err(Refusal::Unknown)) | None => Err(Refused::Unknown),
            };
        }
        match peer {
            Some(uid) => Ok(Caller::User { uid }),
            None if self.is_open() => Ok(Caller::Anyone),
            None => Err(Refused::NoToken),
        }
    }

    fn is_open(&self) -> bool {
        self.door == Door::Loopback && self.app.settings.tokens.lets_anyone_in(&self.app.tokens)
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

/// As much of a name as any good one has.
fn cut(name: &str) -> String {
    name.chars().take(2 * MAX_NAME).collect()
}

/// Why nobody was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    NoToken,
    Unknown,
    Expired,
    Stranger(Option<u32>),
}

impl Refused {
    fn into_response(self) -> Response {
        metrics::counter!("lambswool_unauthorized_total").increment(1);
        match self {
            Self::NoToken => unauthorized(
                "a token is needed: send it as `Authorization: Bearer wool_…`, or give it to `wool` in WOOL_TOKEN or --token-file; make one on the worker's machine with `wool token create NAME --scope …`",
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
    }
}
