"""The second argument of `def handler(event, context)`: AWS Lambda's, field by field.

`invoked_function_arn` is `arn:lambswool:lambda:local:000000000000:function:NAME:VERSION`: every
part stands where it stands in an AWS name, so that code which takes one apart keeps working.
`memory_limit_in_mb` is a `str`, as AWS has it. `identity` has both its fields, None;
`client_context` is None. Ours are `content_type`, the type of the body that came, and
`generation_id`, which no two instances have in common, nor one before and after it was reset.
"""

import time

from lambswool_guest import generation

# Not a module's name: what freezes time for a test goes through all modules and replaces those.
_CLOCK = (time.monotonic,)


class Identity:
    """No identity provider stands before a function here."""

    cognito_identity_id = None
    cognito_identity_pool_id = None

    def __repr__(self) -> str:
        return "Identity([cognito_identity_id=None,cognito_identity_pool_id=None])"


class LambdaContext:
    """One invocation, as the handler sees it."""

    def __init__(self, load: dict, invoke: dict) -> None:
        self._deadline = _CLOCK[0]() + invoke["remaining_ms"] / 1000
        self.function_name: str = load["name"]
        self.function_version: str = load["version"]
        self.invoked_function_arn = (
            f"arn:lambswool:lambda:local:000000000000:function:{load['name']}:{load['version']}"
        )
        self.memory_limit_in_mb = str(load["memory_mb"])
        self.aws_request_id: str = invoke["id"]
        self.generation_id = generation.identity()
        self.log_group_name = f"/lambswool/{load['name']}"
        # AWS's is one for each instance, too.
        self.log_stream_name = f"{load['version']}/{self.generation_id}"
        self.identity = Identity()
        self.client_context = None
        self.content_type: str = invoke["content_type"]

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the worker gives up; never negative."""
        return max(0, int((self._deadline - _CLOCK[0]()) * 1000))

    def log(self, message: object) -> None:
        """AWS's own shorthand."""
        print(message, end="")

    def __repr__(self) -> str:
        shown = ",".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"LambdaContext([{shown}])"
