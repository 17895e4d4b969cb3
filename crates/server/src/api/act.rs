//! The audit line of one control action: begun at the entrance, written when everybody who works on it has let go.
//!
//! A deploy that streams its steps has answered long before it is over: its work holds the line, and says how it ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use axum::response::Response;

use super::error::ErrorType;
use crate::audit::{self, Action, Audit, UNANSWERED};

/// An action under way. Dropping the last handle of it writes its line.
#[derive(Debug)]
pub(super) struct Act {
    audit: Arc<Audit>,
    line: Mutex<Action>,
}

impl Act {
    pub(super) fn begin(audit: Arc<Audit>, line: Action) -> Arc<Self> {
        Arc::new(Self { audit, line: Mutex::new(line) })
    }

    /// Names the version that came of it.
    pub(super) fn made(&self, version: &str) {
        self.line().version = Some(version.to_owned());
    }

    /// Names what it is about, beside a function.
    pub(super) fn about(&self, subject: &str) {
        self.line().subject = Some(subject.to_owned());
    }

    /// What came of it: `ok`, or an error's type.
    pub(super) fn ended(&self, result: &str) {
        result.clone_into(&mut self.line().result);
    }

    /// What came of it, as it was answered; whoever did it may know better, and says so before or after.
    pub(super) fn answered(&self, response: &Response) {
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
        self.audit.write(&line);
    }
}
