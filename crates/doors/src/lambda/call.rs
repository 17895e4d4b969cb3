//! One request of the API: its input, who asks, and where.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use function::{FunctionName, NameError, Qualifier, QualifierError, WholeName};
use lambda_api::arn::{FunctionRef, Place};
use lambda_api::{Fault, Route};
use platform::access::{Action, Permit, Purpose, Requester, to};
use platform::functions::AttachmentError;
use sandbox::InvocationId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::request::{Act, Held};
use crate::{App, Budgets};

/// What an operation works on.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) app: Arc<App>,
    pub(super) place: Arc<Place>,
    pub(super) requester: Requester,
    /// The members of its input, as the model names them.
    pub(super) members: Map<String, Value>,
    /// Its body, as it came.
    pub(super) payload: Bytes,
    /// What its body takes of the memory for bodies.
    pub(super) held: Option<Held>,
    /// What it may take.
    pub(super) budgets: Budgets,
    pub(super) id: InvocationId,
    /// Names the trace that it is part of.
    pub(super) trace_id: String,
    /// The audit line, where it changes something.
    pub(super) act: Option<Arc<Act>>,
}

/// A function as a request names it, and which of its versions.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: FunctionName,
    /// None: the request names no version.
    pub(super) qualifier: Option<Qualifier>,
}

impl Named {
    /// The version: the current one where none is named.
    pub(super) fn version(&self) -> Qualifier {
        self.qualifier.clone().unwrap_or_default()
    }
}

impl Call {
    /// The members of the input that the operation reads. It takes them: they may be many megabytes.
    ///
    /// # Errors
    /// Never for what the model has checked: where a type here is narrower than the model's, the value is refused.
    pub(super) fn read<T: DeserializeOwned>(&mut self) -> Result<T, Fault> {
        let members = Value::Object(std::mem::take(&mut self.members));
        serde_json::from_value(members).map_err(|error| Fault::serialization(error.to_string()))
    }

    /// The function that a request names, by any form of its name.
    ///
    /// # Errors
    /// When it is of another place, or its name is none here.
    pub(super) fn named(&self, text: &str, qualifier: Option<&str>) -> Result<Named, Fault> {
        let FunctionRef { name, qualifier } = FunctionRef::read(text, qualifier, &self.place)?;
        if let Some(act) = &self.act {
            act.is_of(&name);
        }
        // The service allows more: no function here has such a name.
        let missing = |_: NameError| {
            let arn = self.arn(&name, qualifier.as_deref());
            Fault::resource_not_found(format!("Function not found: {arn}"))
        };
        let name = name.parse().map_err(missing)?;
        let qualifier = qualifier.map(|text| text.parse::<Qualifier>());
        let qualifier = qualifier
            .transpose()
            .map_err(|error: QualifierError| Fault::invalid_parameter_value(error.to_string()))?;
        Ok(Named { name, qualifier })
    }

    /// The function that a request names, which is about a whole one.
    ///
    /// # Errors
    /// When it names a version, too.
    pub(super) fn named_whole(&self, text: &str) -> Result<Named, Fault> {
        let named = self.named(text, None)?;
        match named.qualifier {
            None | Some(Qualifier::Latest) => Ok(Named { qualifier: None, ..named }),
            Some(qualifier) => Err(Fault::invalid_parameter_value(format!(
                "The function is named with the qualifier {qualifier}, and the operation is about the whole function: leave the qualifier out"
            ))),
        }
    }

    /// Says in the audit log what it is about, beside a function.
    pub(super) fn about(&self, subject: &str) {
        if let Some(act) = &self.act {
            act.about(subject);
        }
    }

    /// Says in the audit log that it is another action than its operation usually is.
    pub(super) fn is_rather(&self, action: Action) {
        if let (Some(act), Some(name)) = (&self.act, action.audited()) {
            act.is_rather(name);
        }
    }

    /// Frees its body, once the operation has read it.
    pub(super) fn forget_body(&mut self) {
        (self.payload, self.held) = (Bytes::new(), None);
    }

    /// The right to do something with a function.
    ///
    /// # Errors
    /// When the caller may not.
    pub(super) fn permit<P>(&self, name: &FunctionName) -> Result<Permit<P>, Fault>
    where
        P: Purpose<Subject = WholeName>,
    {
        Ok(self.requester.clone().permit(name).map_err(ApiError::from)?)
    }

    /// The right to do something that is about no single function.
    ///
    /// # Errors
    /// When the caller may not.
    pub(super) fn permit_all<P: Purpose<Subject = ()>>(&self) -> Result<Permit<P>, Fault> {
        Ok(self.requester.clone().permit(&()).map_err(ApiError::from)?)
    }

    /// Does work to its end, though the client may go away meanwhile.
    ///
    /// # Errors
    /// Those of the work.
    pub(super) async fn carry_out<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        match &self.act {
            Some(act) => Arc::clone(act).carry_out(work).await,
            None => work.await,
        }
    }

    /// Whether the function that a request names is there, with the version or alias that it names.
    ///
    /// # Errors
    /// When the caller may not do this with it.
    pub(super) fn has<P>(&self, named: &Named) -> Result<bool, Fault>
    where
        P: Purpose<Subject = WholeName>,
    {
        let permit = self.permit::<P>(&named.name)?;
        Ok(self.app.attachments.has_version(&permit, &named.version()))
    }

    /// What is kept beside a function under this kind and key.
    ///
    /// # Errors
    /// When there is no such function, or the caller may not look.
    pub(super) fn attached<T: DeserializeOwned>(
        &self,
        named: &Named,
        kind: &str,
        key: &str,
    ) -> Result<Option<T>, Fault> {
        let permit = self.permit::<to::ShowFunction>(&named.name)?;
        self.app.functions.show(&permit).ok_or_else(|| self.not_found(named))?;
        let text = self.app.attachments.get(&permit, kind, key);
        text.map(|text| serde_json::from_str(&text).map_err(unreadable)).transpose()
    }

    /// The keys and values of all that is kept beside a function under this kind, by key.
    ///
    /// # Errors
    /// When the caller may not look.
    pub(super) fn all_attached<T: DeserializeOwned>(
        &self,
        named: &Named,
        kind: &str,
    ) -> Result<Vec<(String, T)>, Fault> {
        let permit = self.permit::<to::ShowFunction>(&named.name)?;
        let all = self.app.attachments.list(&permit, kind).into_iter();
        let read = |(key, text): (String, String)| {
            Ok((key, serde_json::from_str(&text).map_err(unreadable)?))
        };
        all.map(read).collect()
    }

    /// Changes what is kept beside a function under this kind and key; nothing comes between looking and changing. What
    /// equals its default is not kept.
    ///
    /// # Errors
    /// When there is no such function, the caller may not, or `change` refuses.
    pub(super) async fn change<T>(
        &self,
        named: &Named,
        kind: &'static str,
        key: &str,
        change: impl FnOnce(&mut T) -> Result<(), Fault> + Send + 'static,
    ) -> Result<T, Fault>
    where
        T: DeserializeOwned + Serialize + Default + PartialEq,
    {
        let permit = self.permit::<to::Configure>(&named.name)?;
        let attachments = self.app.attachments.clone();
        let (key, missing) = (key.to_owned(), self.not_found(named));
        let changed = self.carry_out(async move {
            let over = move |before: Option<&str>| {
                let before = before.map(serde_json::from_str::<T>).transpose();
                let mut value = before.map_err(unreadable)?.unwrap_or_default();
                change(&mut value)?;
                let text = (value != T::default()).then(|| serde_json::to_string(&value));
                text.transpose().map_err(unreadable)
            };
            let changed = attachments.change(&permit, kind, key, over).await;
            changed.map_err(|error| match error {
                AttachmentError::Unknown(_) => missing,
                AttachmentError::Refused(fault) => fault,
                AttachmentError::TooMuch(_) => Fault::invalid_parameter_value(error.to_string()),
                AttachmentError::Store(_) | AttachmentError::BrokeOff => {
                    ApiError::internal(error.to_string()).into()
                }
            })
        });
        let text = changed.await?;
        let value = text.map(|text| serde_json::from_str(&text).map_err(unreadable)).transpose()?;
        Ok(value.unwrap_or_default())
    }

    /// There is no such function, or it has no such version.
    pub(super) fn not_found(&self, named: &Named) -> Fault {
        let qualifier = named.qualifier.as_ref().map(ToString::to_string);
        let arn = self.arn(named.name.as_str(), qualifier.as_deref());
        Fault::resource_not_found(format!("Function not found: {arn}"))
    }

    /// The function's ARN, with what stands behind it.
    pub(super) fn arn(&self, name: &str, qualifier: Option<&str>) -> String {
        self.place.function_arn(name, qualifier)
    }
}

/// What is kept beside a function is none of ours.
fn unreadable(error: serde_json::Error) -> Fault {
    ApiError::internal(format!("what is kept beside the function cannot be read: {error}")).into()
}

/// What an operation answers.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// None: as the model says.
    pub(super) status: Option<StatusCode>,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

impl Answer {
    /// Without a body.
    pub(super) fn empty() -> Self {
        Self::default()
    }

    /// A structure of the model, as JSON.
    pub(super) fn json(value: &impl Serialize) -> Result<Self, Fault> {
        let body = serde_json::to_vec(value)
            .map_err(|error| ApiError::internal(format!("no answer could be written: {error}")))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self { status: None, headers, body: Body::from(body) })
    }

    /// A part of a list, and the marker of the next part where there is one.
    pub(super) fn part(
        member: &str,
        part: &[impl Serialize],
        next_marker: Option<String>,
    ) -> Result<Self, Fault> {
        let mut members = json!({ member: part });
        if let Some(marker) = next_marker {
            members["NextMarker"] = marker.into();
        }
        Self::json(&members)
    }

    /// Bytes of that type.
    pub(super) fn bytes(body: Bytes, content_type: &str) -> Self {
        Self::body(Body::from(body), content_type)
    }

    /// A body of that type.
    pub(super) fn body(body: Body, content_type: &str) -> Self {
        let answer = Self { status: None, headers: HeaderMap::new(), body };
        answer.with("content-type", content_type)
    }

    /// The same, with a header; what is no value of a header is left out.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// The same, with another status than the model's.
    pub(super) fn status(self, status: StatusCode) -> Self {
        Self { status: Some(status), ..self }
    }

    pub(super) fn into_response(self, route: &Route) -> Response {
        let mut response = Response::new(self.body);
        let usual = StatusCode::from_u16(route.operation.status).unwrap_or(StatusCode::OK);
        *response.status_mut() = self.status.unwrap_or(usual);
        *response.headers_mut() = self.headers;
        response
    }
}
