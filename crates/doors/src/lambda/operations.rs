//! The operations that are answered, and the action that each is. One that has no row is not supported.

use std::pin::Pin;

use lambda_api::Fault;
use platform::access::Action;

use super::call::{Answer, Call};
use super::{
    account, aliases, concurrency, constants, deploy, event_invoke, functions, invoke,
    layer_policy, layers, policy, provisioned, sources, tags, urls, versions,
};

/// What a caller must be allowed in order to learn that an operation is not supported.
pub(super) const UNSUPPORTED: Action = Action::ListFunctions;

/// What an operation's body holds, which says how large it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// An event for a function.
    Event,
    /// An archive with code.
    Code,
    /// Anything else, which is short.
    Little,
}

type Running = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;

/// An operation that is answered.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// What its caller has to be allowed.
    pub(super) action: Action,
    pub(super) takes: Takes,
    pub(super) run: fn(Call) -> Running,
}

macro_rules! operations {
    ($($name:literal $action:ident $takes:ident $run:path,)+) => {
        &[$(Row {
            name: $name,
            action: Action::$action,
            takes: Takes::$takes,
            run: |call| Box::pin($run(call)),
        },)+]
    };
}

const OPERATIONS: &[Row] = operations! {
    "Invoke" Invoke Event invoke::invoke,
    "InvokeAsync" Invoke Event invoke::invoke_async,
    "InvokeWithResponseStream" Invoke Event invoke::stream,

    "CreateFunction" Deploy Code deploy::create,
    "UpdateFunctionCode" Deploy Code deploy::update_code,
    "UpdateFunctionConfiguration" Deploy Little deploy::update_configuration,
    "GetFunction" ShowFunction Little functions::get,
    "GetFunctionConfiguration" ShowFunction Little functions::get_configuration,
    "ListFunctions" ListFunctions Little functions::list,
    "DeleteFunction" Remove Little functions::delete,

    "PublishVersion" Publish Little versions::publish,
    "ListVersionsByFunction" ShowFunction Little versions::list,

    "CreateAlias" SetAlias Little aliases::create,
    "UpdateAlias" SetAlias Little aliases::update,
    "DeleteAlias" RemoveAlias Little aliases::delete,
    "GetAlias" ShowFunction Little aliases::get,
    "ListAliases" ShowFunction Little aliases::list,

    "AddPermission" Configure Little policy::add,
    "RemovePermission" Configure Little policy::remove,
    "GetPolicy" ShowFunction Little policy::get,

    "PublishLayerVersion" PublishLayer Code layers::publish,
    "GetLayerVersion" ShowLayer Little layers::get,
    "GetLayerVersionByArn" ShowLayer Little layers::get_by_arn,
    "ListLayers" ListLayers Little layers::list,
    "ListLayerVersions" ShowLayer Little layers::list_versions,
    "DeleteLayerVersion" RemoveLayer Little layers::delete,

    "AddLayerVersionPermission" ConfigureLayer Little layer_policy::add,
    "RemoveLayerVersionPermission" ConfigureLayer Little layer_policy::remove,
    "GetLayerVersionPolicy" ShowLayer Little layer_policy::get,

    "CreateFunctionUrlConfig" Configure Little urls::create,
    "UpdateFunctionUrlConfig" Configure Little urls::update,
    "DeleteFunctionUrlConfig" Configure Little urls::delete,
    "GetFunctionUrlConfig" ShowFunction Little urls::get,
    "ListFunctionUrlConfigs" ShowFunction Little urls::list,

    "PutFunctionEventInvokeConfig" Configure Little event_invoke::put,
    "UpdateFunctionEventInvokeConfig" Configure Little event_invoke::update,
    "DeleteFunctionEventInvokeConfig" Configure Little event_invoke::delete,
    "GetFunctionEventInvokeConfig" ShowFunction Little event_invoke::get,
    "ListFunctionEventInvokeConfigs" ShowFunction Little event_invoke::list,

    "PutFunctionConcurrency" Configure Little concurrency::put,
    "DeleteFunctionConcurrency" Configure Little concurrency::delete,
    "GetFunctionConcurrency" ShowFunction Little concurrency::get,

    "PutProvisionedConcurrencyConfig" Configure Little provisioned::put,
    "DeleteProvisionedConcurrencyConfig" Configure Little provisioned::delete,
    "GetProvisionedConcurrencyConfig" ShowFunction Little provisioned::get,
    "ListProvisionedConcurrencyConfigs" ShowFunction Little provisioned::list,

    "CreateEventSourceMapping" Configure Little sources::create,
    "UpdateEventSourceMapping" Configure Little sources::update,
    "DeleteEventSourceMapping" Configure Little sources::delete,
    "GetEventSourceMapping" ShowFunction Little sources::get,
    "ListEventSourceMappings" ListFunctions Little sources::list,

    "GetFunctionCodeSigningConfig" ShowFunction Little constants::code_signing,
    "PutRuntimeManagementConfig" Configure Little constants::put_runtime_management,
    "GetRuntimeManagementConfig" ShowFunction Little constants::get_runtime_management,
    "PutFunctionRecursionConfig" Configure Little constants::put_recursion,
    "GetFunctionRecursionConfig" ShowFunction Little constants::get_recursion,

    "ListTags" ShowFunction Little tags::list,
    "TagResource" Configure Little tags::tag,
    "UntagResource" Configure Little tags::untag,

    "GetAccountSettings" ListFunctions Little account::settings,
};

/// The row of an operation; none: it is not supported.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    OPERATIONS.iter().find(|row| row.name == name)
}
