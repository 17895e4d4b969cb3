"""The second argument of `def handler(event, context)`: AWS Lambda's, field by field.

`invoked_function_arn` is `arn:lambswool:lambda:local:000000000000:function:NAME:VERSION`: every
part stands where it stands in an AWS name, so that code which takes one apart keeps working.
`memory_limit_in_mb` is a `str`, as AWS has it. `identity` has both its fields, None;
`client_context` is None. `content_type`, the type of the body that came, is ours.
"""

import posix
import time


class Identity:
    """No identity provider stands before a function here."""

    cognito_identity_id = None
    cognito_identity_pool_id = None

    def __repr__(self) -> str:
        return "Identity([cognito_identity_id=None,cognito_identity_pool_id=None])"


class Log:
    """Where a handler's instance says its output can be found."""

    __slots__ = ("group", "stream")

    def __init__(self, name: str, version: str) -> None:
        self.group = f"/lambswool/{name}"
        self.stream = f"{version}/{posix.urandom(8).hex()}"


class LambdaContext:
    """One invocation, as the handler sees it."""

    def __init__(self, load: dict, log: Log, invoke: dict) -> None:
        self._deadline = time.monotonic() + invoke["remaining_ms"] / 1000
        self.function_name: str = load["name"]
        self.function_version: str = load["version"]
        self.invoked_function_arn = (
            f"arn:lambswool:lambda:local:000000000000:function:{load['name']}:{load['version']}"
        )
        self.memory_limit_in_mb = str(load["memory_mb"])
        self.aws_request_id: str = invoke["id"]
        self.log_group_name = log.group
        self.log_stream_name = log.stream
        self.identity = Identity()
        self.client_context = None
        self.content_type: str = invoke["content_type"]

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the worker gives up; never negative."""
        return max(0, int((self._deadline - time.monotonic()) * 1000))

    def log(self, message: object) -> None:
        """AWS's own shorthand."""
        print(message, end="")

    def __repr__(self) -> str:
        shown = ",".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"LambdaContext([{shown}])"
