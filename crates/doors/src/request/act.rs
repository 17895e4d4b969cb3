//! The audit line of one control action: begun at the entrance, written when the last part that works on it has let go.
//!
//! A deploy that streams its steps has answered long before it is over: its work holds the line, and says how it ended. So
//! does all work that was begun: its client may be gone by then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use axum::response::Response;

use crate::error::{ApiError, ErrorType};
use platform::audit::{self, Action, Among, Audit, BROKE_OFF, UNANSWERED};

/// An error of an API, which an audit line names.
pub(crate) trait Refusal: From<ApiError> + Send + 'static {
    /// Its type, as a client sees it.
    fn kind(&self) -> &str;
}

impl Refusal for ApiError {
    fn kind(&self) -> &str {
        &self.detail().r#type
    }
}

/// An action under way. Dropping the last handle of it writes its line.
#[derive(Debug)]
pub(crate) struct Act {
    audit: Arc<Audit>,
    among: Among,
    line: Mutex<Action>,
}

impl Act {
    pub(crate) fn begin(audit: Arc<Audit>, among: Among, line: Action) -> Arc<Self> {
        Arc::new(Self { audit, among, line: Mutex::new(line) })
    }

    /// Names the version that came of it.
    pub(crate) fn made(&self, version: &str) {
        self.line().version = Some(version.to_owned());
    }

    /// Names what was done, where that is another action than was begun.
    pub(crate) fn is_rather(&self, action: &str) {
        action.clone_into(&mut self.line().action);
    }

    /// Names the function that it is about, where the path did not.
    pub(crate) fn is_of(&self, function: &str) {
        self.line().function = Some(function.to_owned());
    }

    /// Names what it is about, beside a function.
    pub(crate) fn about(&self, subject: &str) {
        self.line().subject = Some(subject.to_owned());
    }

    /// From now on something may have been changed.
    pub(crate) fn begun(&self) {
        self.ended(BROKE_OFF);
    }

    /// Does its work to the end, though its client may go away meanwhile, and notes the result.
    pub(crate) async fn carry_out<T: Send + 'static, E: Refusal>(
        self: Arc<Self>,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E> {
        self.begun();
        let work = tokio::spawn(async move {
            let done = work.await;
            self.ended(done.as_ref().err().map_or("ok", Refusal::kind));
            // Its line is written before anything is answered.
            drop(self);
            done
        });
        let broke_off = |_| ApiError::internal("the work broke off: see the worker's log");
        work.await.map_err(broke_off).map_err(E::from)?
    }

    /// What came of it: `ok`, or an error's type.
    pub(crate) fn ended(&self, result: &str) {
        result.clone_into(&mut self.line().result);
    }

    /// What came of it, where it was answered with this error or none. The work itself may know better.
    pub(crate) fn came_to<E: Refusal>(&self, error: Option<&E>) {
        if self.line().result == UNANSWERED {
            self.ended(error.map_or("ok", Refusal::kind));
        }
    }

    /// The result as it was answered. The work itself may know better, and says so before or after.
    pub(crate) fn answered(&self, response: &Response) {
        if self.line().result != UNANSWERED {
            return;
        }
        match response.extensions().get::<ErrorType>() {
            Some(ErrorType(error)) => self.ended(error),
            None if response.status() < StatusCode::BAD_REQUEST => self.ended("ok"),
            None => self.ended(response.status().as_str()),
        }
    }

    fn line(&self) -> MutexGuard<'_, Action> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        let mut line = self.line();
        line.time = audit::now();
        self.audit.write(&self.among, &line);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;
    use platform::access::{Caller, Requester, to};
    use platform::audit::{AUDIT, Who};

    fn act(audit: &Arc<Audit>) -> Arc<Act> {
        let line = Action {
            time: String::new(),
            who: Who::Uid(7),
            remote: String::new(),
            tenant: "acme".to_owned(),
            action: "remove secret".to_owned(),
            function: None,
            version: None,
            subject: None,
            result: UNANSWERED.to_owned(),
        };
        Act::begin(Arc::clone(audit), Among::Administrators, line)
    }

    #[tokio::test]
    async fn work_that_was_begun_says_what_came_of_it_whoever_has_left() {
        let audit = Arc::new(Audit::new(Box::new(store::memory::Memory::default()), AUDIT));
        let requester =
            Requester { caller: Caller::User { uid: 0 }, tenant: "acme".parse().unwrap() };
        let permit = requester.permit::<to::ReadAudit>(&()).unwrap();
        let results = async |most: usize| loop {
            let read = audit.read(&permit, 100).await.unwrap().unwrap();
            if read.len() == most {
                break read.into_iter().map(|action| action.result).collect::<Vec<_>>();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let missing = || ApiError::new(StatusCode::NOT_FOUND, "unknown-secret", "");
        for (number, came) in [Err(missing()), Ok(())].into_iter().enumerate() {
            let (go, wait) = oneshot::channel();
            let mut work = Box::pin(act(&audit).carry_out(async move { wait.await.unwrap() }));
            assert!((&mut work).now_or_never().is_none());
            // The client hangs up.
            drop(work);
            go.send(came).unwrap();
            results(number + 1).await;
        }
        // Never begun; broken off.
        drop(act(&audit));
        let broken =
            act(&audit).carry_out::<(), ApiError>(async { panic!("as a bug would") }).await;
        assert_eq!(broken.unwrap_err().detail().r#type, "internal");
        assert_eq!(results(4).await, ["unknown-secret", "ok", UNANSWERED, BROKE_OFF]);
    }
}
