//! Why Lambswool has no use for an operation, or what to use in its place.

/// The operations without an answer, and why, in groups that share a reason.
const REASONS: [(&str, &[&str]); 6] = [
    (
        "code is not checked for signatures of AWS Signer; a version is bound to the SHA-256 of its \
         code, which CodeSha256 of PublishVersion checks",
        &[
            "CreateCodeSigningConfig",
            "DeleteCodeSigningConfig",
            "DeleteFunctionCodeSigningConfig",
            "GetCodeSigningConfig",
            "ListCodeSigningConfigs",
            "ListFunctionsByCodeSigningConfig",
            "PutFunctionCodeSigningConfig",
            "UpdateCodeSigningConfig",
        ],
    ),
    (
        "durable executions are not kept; have the function keep its progress in a store of its own, \
         and call itself with InvocationType=Event",
        &[
            "CheckpointDurableExecution",
            "DeleteDurableExecution",
            "GetDurableExecution",
            "GetDurableExecutionHistory",
            "GetDurableExecutionState",
            "ListDurableExecutionsByFunction",
            "PauseDurableExecution",
            "ResumeDurableExecution",
            "StopDurableExecution",
        ],
    ),
    (
        "no durable execution waits for this callback",
        &[
            "SendDurableExecutionCallbackFailure",
            "SendDurableExecutionCallbackHeartbeat",
            "SendDurableExecutionCallbackSuccess",
        ],
    ),
    (
        "functions run on the worker's own machine and not on instances of EC2",
        &[
            "CreateCapacityProvider",
            "DeleteCapacityProvider",
            "GetCapacityProvider",
            "ListCapacityProviders",
            "ListFunctionVersionsByCapacityProvider",
            "UpdateCapacityProvider",
        ],
    ),
    (
        "it scales functions of capacity providers; use PutFunctionConcurrency",
        &["GetFunctionScalingConfig", "PutFunctionScalingConfig"],
    ),
    (
        "a policy is kept statement by statement; use AddPermission, RemovePermission and GetPolicy",
        &["DeleteResourcePolicy", "GetResourcePolicy", "PutResourcePolicy"],
    ),
];

/// Of the operation of this name.
pub(crate) fn reason(operation: &str) -> Option<&'static str> {
    let found = REASONS.iter().find(|(_, operations)| operations.contains(&operation));
    found.map(|(reason, _)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Operation};

    #[test]
    fn every_reason_is_of_an_operation_that_exists() {
        let mut named: Vec<&str> = REASONS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(named.len(), 31);
        for name in &named {
            let operation = Operation::named(name).unwrap_or_else(|| panic!("{name}"));
            let fault = Fault::unsupported(operation);
            assert_eq!((fault.code(), fault.status()), ("InvalidParameterValueException", 400));
            let start = format!("{name} is not supported by Lambswool: ");
            assert!(fault.message().starts_with(&start), "{fault}");
        }
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), 31);
    }

    #[test]
    fn an_operation_without_a_reason_is_refused_all_the_same() {
        let fault = Fault::unsupported(Operation::named("Invoke").unwrap());
        assert_eq!(fault.message(), "Invoke is not supported by Lambswool");
    }
}
