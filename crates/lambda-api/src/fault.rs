//! The errors of the service.

use serde_json::{Map, Value};

use crate::Operation;
use crate::model::MODEL;
use crate::unsupported;

/// Errors of the service's framework, which its model does not list: code, status, key of the text.
const FRAMEWORK: [(&str, u16, &str); 9] = [
    ("AccessDeniedException", 403, "Message"),
    ("ExpiredTokenException", 403, "message"),
    ("InvalidSignatureException", 403, "message"),
    ("MissingAuthenticationTokenException", 403, "message"),
    ("RequestEntityTooLargeException", 413, "message"),
    ("SerializationException", 400, "message"),
    ("UnknownOperationException", 404, "message"),
    ("UnrecognizedClientException", 403, "message"),
    ("ValidationException", 400, "message"),
];

/// No more of a stranger's text than this, in characters, is repeated in a message.
const MAX_REPEATED: usize = 1000;

/// No message is longer than this, in characters, whatever it repeats.
const MAX_MESSAGE: usize = 8000;

/// An error of the service, as a client is to see it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Fault {
    code: &'static str,
    status: u16,
    message: String,
    text_key: &'static str,
    sender: bool,
    reason: Option<&'static str>,
    retry_after: Option<u32>,
}

/// Constructors of the errors whose text the caller says.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:literal,)*) => {
        impl Fault {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(message: impl Into<String>) -> Self {
                Self::of($code, message.into())
            })*
        }

        #[cfg(test)]
        const CONSTRUCTORS: &[(fn(String) -> Fault, &str)] = &[$((Fault::$name, $code),)*];
    };
}

constructors! {
    /// 403: what the caller may not do.
    access_denied => "AccessDeniedException",
    /// 404: also for a function that has none.
    code_signing_config_not_found => "CodeSigningConfigNotFoundException",
    /// 400: more code than an account may keep.
    code_storage_exceeded => "CodeStorageExceededException",
    /// 403: the token was valid once.
    expired_token => "ExpiredTokenException",
    /// 400: a value that no constraint of the model refuses, and the operation does.
    invalid_parameter_value => "InvalidParameterValueException",
    /// 400: the payload of an invocation is no JSON.
    invalid_request_content => "InvalidRequestContentException",
    /// 502: the runtime of a function cannot run here.
    invalid_runtime => "InvalidRuntimeException",
    /// 403: the signature is not that of the request.
    invalid_signature => "InvalidSignatureException",
    /// 502: the code of a function cannot be unpacked.
    invalid_zip_file => "InvalidZipFileException",
    /// 403: the request says nothing of its caller.
    missing_authentication_token => "MissingAuthenticationTokenException",
    /// 400: a resource policy grew too long.
    policy_length_exceeded => "PolicyLengthExceededException",
    /// 412: `RevisionId` is not that of the resource.
    precondition_failed => "PreconditionFailedException",
    /// 404: a qualifier without provisioned concurrency.
    provisioned_concurrency_config_not_found => "ProvisionedConcurrencyConfigNotFoundException",
    /// 413: a request that creates or updates is too long.
    request_entity_too_large => "RequestEntityTooLargeException",
    /// 413: the payload of an invocation is too long.
    request_too_large => "RequestTooLargeException",
    /// 409: it exists already, or is being changed.
    resource_conflict => "ResourceConflictException",
    /// 400: it is in use.
    resource_in_use => "ResourceInUseException",
    /// 404: function, version, alias, layer or statement.
    resource_not_found => "ResourceNotFoundException",
    /// 502: the function is not active.
    resource_not_ready => "ResourceNotReadyException",
    /// 400: the body is not what the operation reads.
    serialization => "SerializationException",
    /// 500: not the client's fault; SDKs try again.
    service => "ServiceException",
    /// 403: the token is unknown.
    unrecognized_client => "UnrecognizedClientException",
    /// 415: the payload has a content type that is not read.
    unsupported_media_type => "UnsupportedMediaTypeException",
    /// 400: see [`Fault::violations`] for several.
    validation => "ValidationException",
}

impl Fault {
    fn of(code: &'static str, message: String) -> Self {
        let message = shortened_to(MAX_MESSAGE, &message);
        let (status, text_key, sender) = match MODEL.errors.get(code) {
            Some(facts) => (facts.status, facts.text.as_str(), facts.sender),
            None => {
                let row = FRAMEWORK.iter().find(|row| row.0 == code);
                let (_, status, text_key) = *row.expect("a test makes each fault");
                (status, text_key, false)
            }
        };
        Self { code, status, message, text_key, sender, reason: None, retry_after: None }
    }

    /// 429, with the reason in the service's list of them:
    /// `ReservedFunctionConcurrentInvocationLimitExceeded` or `CallerRateLimitExceeded`.
    #[must_use]
    pub fn too_many_requests(reason: &'static str) -> Self {
        let fault = Self::of("TooManyRequestsException", "Rate Exceeded.".to_owned());
        Self { reason: Some(reason), ..fault }
    }

    /// `ValidationException`, of each `Value … failed to satisfy constraint: …`.
    #[must_use]
    pub fn violations(all: &[String]) -> Self {
        let (count, errors) = (all.len(), if all.len() == 1 { "error" } else { "errors" });
        Self::validation(format!("{count} validation {errors} detected: {}", all.join("; ")))
    }

    /// What an operation answers that has no use here, or not yet: 400, with the reason.
    #[must_use]
    pub fn unsupported(operation: &Operation) -> Self {
        let name = operation.name;
        Self::invalid_parameter_value(match unsupported::reason(name) {
            Some(reason) => format!("{name} is not supported by Lambswool: {reason}"),
            None => format!("{name} is not supported by Lambswool"),
        })
    }

    pub(crate) fn unknown_operation(method: &str, path: &str) -> Self {
        let (method, path) = (shortened(method), shortened(path));
        let message = format!("AWS Lambda's API has no operation {method} {path}");
        Self::of("UnknownOperationException", message)
    }

    pub(crate) fn unknown_method() -> Self {
        Self::access_denied("Unable to determine service/operation name to be authorized")
    }

    /// Tells the client when to try again, in seconds: header `Retry-After`.
    #[must_use]
    pub fn with_retry_after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// For the header `x-amzn-ErrorType`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The status of the reply.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The text that says what is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Seconds, for the header `Retry-After`.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    /// JSON: the text, under the key that this error has, and `Type` and `Reason` if there are any.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut body = Map::new();
        if self.sender {
            body.insert("Type".to_owned(), Value::from("User"));
        }
        if let Some(reason) = self.reason {
            body.insert("Reason".to_owned(), Value::from(reason));
        }
        body.insert(self.text_key.to_owned(), Value::from(self.message.as_str()));
        Value::Object(body).to_string().into_bytes()
    }
}

/// A stranger's text, as far as it is repeated.
pub(crate) fn shortened(text: &str) -> String {
    shortened_to(MAX_REPEATED, text)
}

fn shortened_to(most: usize, text: &str) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constructor_has_the_code_that_it_names() {
        for (constructor, code) in CONSTRUCTORS {
            let fault = constructor("text".to_owned());
            assert_eq!((fault.code(), fault.message()), (*code, "text"));
            assert_eq!(fault.to_string(), format!("{code}: text"));
            let body: Value = serde_json::from_slice(&fault.body()).unwrap();
            let text = body.get("message").or_else(|| body.get("Message"));
            assert_eq!(text, Some(&Value::from("text")));
        }
        for (code, ..) in FRAMEWORK {
            assert!(!MODEL.errors.contains_key(code), "{code}: the model has it now");
        }
    }

    #[test]
    fn bodies_are_those_of_the_service() {
        let body = |fault: Fault| String::from_utf8(fault.body()).unwrap();
        let not_found = Fault::resource_not_found("Function not found: a");
        assert_eq!(not_found.status(), 404);
        assert_eq!(body(not_found), r#"{"Message":"Function not found: a","Type":"User"}"#);
        let validation = Fault::violations(&["A".to_owned(), "B".to_owned()]);
        assert_eq!(body(validation), r#"{"message":"2 validation errors detected: A; B"}"#);
        let reason = "ReservedFunctionConcurrentInvocationLimitExceeded";
        let throttled = Fault::too_many_requests(reason).with_retry_after(2);
        assert_eq!((throttled.status(), throttled.retry_after()), (429, Some(2)));
        let text = r#"{"Reason":"…","Type":"User","message":"Rate Exceeded."}"#;
        assert_eq!(body(throttled), text.replace('…', reason));
        assert_eq!(body(Fault::service("x")), r#"{"Message":"x"}"#);
    }

    #[test]
    fn long_texts_of_strangers_are_shortened() {
        let fault = Fault::unknown_operation("GET", &"ä".repeat(100_000));
        assert!(fault.message().len() < 3000, "{}", fault.message().len());
        assert!(fault.message().ends_with("ä…"));
        assert!(Fault::service("x".repeat(1 << 20)).body().len() < 9000);
    }
}
