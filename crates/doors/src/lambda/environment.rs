//! Environment variables: a function's own, and those that AWS Lambda's functions find.

use std::collections::BTreeMap;

use lambda_api::Fault;
use lambda_api::arn::Place;
use serde::Deserialize;

/// The longest environment, as JSON: the service's own limit.
const BYTES: usize = 4096;

/// Names that the service sets itself.
const RESERVED: [&str; 20] = [
    "_HANDLER",
    "_X_AMZN_TRACE_ID",
    "AWS_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_DEFAULT_REGION",
    "AWS_EXECUTION_ENV",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_INITIALIZATION_TYPE",
    "AWS_LAMBDA_LOG_GROUP_NAME",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SECRET_KEY",
    "AWS_SECURITY_TOKEN",
    "AWS_SESSION_TOKEN",
    "LAMBDA_RUNTIME_DIR",
    "LAMBDA_TASK_ROOT",
];

/// `Environment`, as a request says it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Environment {
    #[serde(default)]
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The variables, each with its value.
    ///
    /// # Errors
    /// When they are too long together, or one is the service's own.
    pub(super) fn checked(self) -> Result<BTreeMap<String, String>, Fault> {
        let refused = |why: String| {
            Fault::invalid_parameter_value(format!(
                "Lambda was unable to configure your environment variables because the environment variables you have provided {why}"
            ))
        };
        let reserved: Vec<&str> =
            RESERVED.into_iter().filter(|name| self.variables.contains_key(*name)).collect();
        if !reserved.is_empty() {
            return Err(refused(format!(
                "contains reserved keys that are currently not supported for modification. Reserved keys used in this request: {}",
                reserved.join(", ")
            )));
        }
        let measured = serde_json::to_string(&self.variables).unwrap_or_default();
        if measured.len() > BYTES {
            return Err(refused(format!("exceeded the 4KB limit. String measured: {measured}")));
        }
        Ok(self.variables)
    }
}

/// The function's own variables, with those that its code finds in this place.
pub(super) fn complete(
    mut own: BTreeMap<String, String>,
    place: &Place,
) -> BTreeMap<String, String> {
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        own.insert(name.to_owned(), place.region.clone());
    }
    own
}

/// The function's own variables among all that it finds.
pub(super) fn of_user(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = all.iter().filter(|(name, _)| !RESERVED.contains(&name.as_str()));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_service_and_too_much_are_refused() {
        let said = |name: &str, value: String| Environment {
            variables: BTreeMap::from([(name.to_owned(), value)]),
        };
        let refused = said("AWS_REGION", String::new()).checked().unwrap_err();
        assert!(refused.message().ends_with("used in this request: AWS_REGION"), "{refused}");
        let refused = said("A", "x".repeat(BYTES)).checked().unwrap_err();
        assert!(refused.message().contains("exceeded the 4KB limit"), "{refused}");
        let own = said("A", "1".to_owned()).checked().unwrap();
        let place = Place {
            partition: "aws".to_owned(),
            region: "eu-west-1".to_owned(),
            account: "000000000000".to_owned(),
        };
        let all = complete(own.clone(), &place);
        assert_eq!(all["AWS_REGION"], "eu-west-1");
        assert_eq!(of_user(&all), own);
    }
}
