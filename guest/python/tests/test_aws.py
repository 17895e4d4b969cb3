"""Functions that are called as AWS Lambda's runtime for Python calls them: its words, its context,
its log. Where a value was seen with `awslambdaric`, `test_aws_oracle` compares with that itself."""

import json
import re

import pytest

from test_zygote import zygote  # noqa: F401 - a fixture

ARN = "arn:aws:lambda:eu-central-1:123456789012:function:greet:live"


def aws(handler: str = "main.handler", **fields) -> dict:
    """Fields of a load."""
    said = {"handler": handler, "runtime": "python3.12"} | fields
    return {"lambda": said, "version": "$LATEST"}


@pytest.fixture
def greet(loaded):
    """`loaded`, as such a function."""
    return lambda code, environment=(), **fields: loaded(
        code, **aws(**fields), environment=dict(environment)
    )


def failed(answer) -> tuple[str, str, list[str]]:
    assert answer.kind == "failed", (answer.header, answer.body)
    return answer.header["error_type"], answer.message, answer.header["traceback"]


def test_an_exception_has_its_bare_name_and_the_frames_of_the_function(greet, task):
    guest = greet(
        """
        class Mine(Exception): ...
        def inner():
            raise Mine("no") from KeyError("a")
        def handler(event, context):
            inner()
        """
    )
    answer = guest.call(id="r-1")
    frames = [
        f'  File "{task}/main.py", line 6, in handler\n    inner()\n',
        f'  File "{task}/main.py", line 4, in inner\n    raise Mine("no") from KeyError("a")\n',
    ]
    assert failed(answer) == ("Mine", "no", frames)
    lines = ["[ERROR] Mine: no", "Traceback (most recent call last):"]
    lines += [f'\u00a0\u00a0File "{task}/main.py", line 6, in handler', "\u00a0" * 4 + "inner()"]
    lines += [f'\u00a0\u00a0File "{task}/main.py", line 4, in inner']
    lines += ["\u00a0" * 4 + 'raise Mine("no") from KeyError("a")']
    assert answer.text("stdout") == "\n".join(lines) + "\n"
    assert failed(guest.call())[0] == "Mine", "the instance goes on"


@pytest.mark.parametrize(
    "code, handler, kind, words",
    [
        (
            None,
            "main.handler",
            "ImportModuleError",
            "Unable to import module 'main': No module named 'main'",
        ),
        (
            None,
            "a/b.handler",
            "ImportModuleError",
            "Unable to import module 'a/b': No module named 'a'",
        ),
        (
            "import nosuchpkg",
            "main.handler",
            "ImportModuleError",
            "Unable to import module 'main': No module named 'nosuchpkg'",
        ),
        ("x = 1", "main.missing", "HandlerNotFound", "Handler 'missing' missing on module 'main'"),
        ("x = 1", "main.", "HandlerNotFound", "Handler '' missing on module 'main'"),
        (
            "x = 1",
            "nodot",
            "MalformedHandlerName",
            "Bad handler 'nodot': not enough values to unpack (expected 2, got 1)",
        ),
        (
            "x = 1",
            "sys.exit",
            "BuiltInModuleConflict",
            "Cannot use built-in module sys as a handler module",
        ),
    ],
)
def test_what_fails_before_the_handler_has_awss_type_and_words(start, code, handler, kind, words):
    answer = start(code).load(**aws(handler))
    assert failed(answer) == (f"Runtime.{kind}", words, [])
    assert answer.text("stdout").startswith(f"[ERROR] Runtime.{kind}: {words}\nTraceback ")


def test_a_syntax_error_is_told_with_its_line(start, task):
    kind, words, frames = failed(start("def handler(e c):\n").load(**aws()))
    assert (kind, words) == (
        "Runtime.UserCodeSyntaxError",
        "Syntax error in module 'main': invalid syntax (main.py, line 1)",
    )
    assert frames == [f'  File "{task}/main.py" Line 1\n    def handler(e c):\n']


def test_what_a_module_raises_is_told_without_the_import_systems_frames(start, task):
    answer = start("raise ValueError('at import')").load(**aws())
    frame = f"  File \"{task}/main.py\", line 1, in <module>\n    raise ValueError('at import')\n"
    assert failed(answer) == ("ValueError", "at import", [frame])


def test_a_handler_may_lie_in_a_folder_and_have_any_name(start, task):
    (task / "src").mkdir()
    (task / "src" / "app.py").write_text(
        "class It:\n def __call__(self, e, c): return [e]\nrun = It()\n"
    )
    for handler in ("src/app.run", "src.app.run"):
        guest = start()
        assert guest.load(**aws(handler)).kind == "loaded"
        assert guest.call(1).value == [1]


@pytest.mark.parametrize(
    "handler, words",
    [
        ("def handler(event): ...", "handler() takes 1 positional argument but 2 were given"),
        ("handler = 3", "'int' object is not callable"),
    ],
)
def test_a_function_is_called_with_an_event_and_a_context_whatever_it_takes(greet, handler, words):
    assert failed(greet(handler).call()) == ("TypeError", words, [])


@pytest.mark.parametrize(
    "result, body",
    [
        ("None", b"null"),
        ("{'a': [1, 2.5, True, 'ü', None]}", '{"a": [1, 2.5, true, "ü", null]}'.encode()),
        ("[Decimal('1.10'), Decimal('NaN'), b'x', 'q\"']", b'[1.10, NaN, "x", "q\\""]'),
        ("float('inf')", b"Infinity"),
        ("P(1, 2)", b'{"x": 1, "y": 2}'),
        ("b'abc'", b"abc"),
    ],
)
def test_a_result_is_written_as_aws_writes_it(greet, result, body):
    guest = greet(
        f"""
        from collections import namedtuple
        from decimal import Decimal
        P = namedtuple("P", "x y")
        def handler(event, context): return {result}
        """
    )
    answer = guest.call()
    assert (answer.kind, answer.body) == ("done", body)


def test_older_runtimes_write_ascii(greet):
    guest = greet("def handler(event, context): return ['ü', b'x']", runtime="python3.11")
    assert guest.call().body == b'["\\u00fc", "x"]'


@pytest.mark.parametrize(
    "result, words",
    [
        ("{1}", "Object of type set is not JSON serializable"),
        ("{(1, 2): 3}", "keys must be str, int, float, bool or None, not tuple"),
        (
            "{'a': b'\\xff'}",
            "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
    ],
)
def test_a_result_that_is_no_json_is_a_marshal_error(greet, result, words):
    answer = greet(f"def handler(event, context): return {result}").call()
    assert failed(answer) == ("Runtime.MarshalError", f"Unable to marshal response: {words}", [])


def test_an_event_is_empty_or_json(greet):
    guest = greet("def handler(event, context): return event")
    assert guest.call(body=b"").value == {}
    kind, words, _ = failed(guest.call(body=b"["))
    assert kind == "Runtime.UnmarshalError" and words.startswith("Unable to unmarshal input: ")


@pytest.mark.parametrize(
    "statement, words, written",
    [
        ("sys.exit(3)", "with error: exit status 3", ""),
        ("sys.exit()", "without providing a reason", ""),
        ("sys.exit('why')", "with error: exit status 1", "why\n"),
        ("raise KeyboardInterrupt", "with error: exit status 1", "KeyboardInterrupt\n"),
    ],
)
def test_what_ends_awss_interpreter_is_told_so(greet, start, statement, words, written):
    answer = greet(f"import sys\ndef handler(event, context):\n print('said')\n {statement}").call()
    assert failed(answer) == ("Runtime.ExitError", f"Runtime exited {words}", [])
    assert answer.text("stdout") == "said\n" and answer.text("stderr").endswith(written)
    answer = start(f"import sys\n{statement}\n").load(**aws())
    assert failed(answer)[:2] == ("Runtime.ExitError", f"Runtime exited {words}")


CONTEXT = """
    import pickle
    def handler(event, context):
        kinds = [type(one).__name__ for one in (context, context.identity, context.client_context)]
        named = {name: value for name, value in vars(context).items() if name[0] != "_"}
        client = context.client_context
        return {
            **named, "identity": [context.identity.cognito_identity_id,
                                  context.identity.cognito_identity_pool_id],
            "client_context": client and [client.custom, client.env, client.client
                                          and client.client.app_title, repr(client)],
            "left": context.get_remaining_time_in_millis(), "kinds": kinds, "repr": repr(context),
            "pickled": pickle.loads(pickle.dumps(context)).aws_request_id, "w3c": context.w3c(),
            "deadline": context._epoch_deadline_time_in_ms,
        }
"""


def test_the_context_is_awss_field_by_field(greet):
    guest = greet(CONTEXT)
    client = {"client": {"app_title": "t"}, "custom": {"a": 1}, "w3c": {"baggage": "b", "x": "y"}}
    given = {
        "function_arn": ARN,
        "version": "7",
        "client_context": json.dumps(client),
        "tenant_id": "blue",
    }
    seen = guest.call(id="r-1", remaining_ms=3000, **{"lambda": given}).value
    stream = seen["log_stream_name"]
    assert re.fullmatch(r"20\d\d/\d\d/\d\d/\[7\][0-9a-f]{32}", stream)
    expected = {
        "aws_request_id": "r-1",
        "function_name": "greet",
        "function_version": "7",
        "invoked_function_arn": ARN,
        "memory_limit_in_mb": "256",
        "log_group_name": "/aws/lambda/greet",
        "tenant_id": "blue",
        "identity": [None, None],
        "pickled": "r-1",
        "w3c": {"baggage": "b"},
        "kinds": ["LambdaContext", "CognitoIdentity", "ClientContext"],
    }
    assert expected.items() <= seen.items()
    assert seen["client_context"] == [
        {"a": 1},
        None,
        "t",
        "ClientContext([custom={'a': 1},env=None,client=Client([installation_id=None,app_title=t,"
        "app_version_name=None,app_version_code=None,app_package_name=None])])",
    ]
    assert 1000 < seen["left"] <= 3000
    assert seen["repr"].startswith(
        f"LambdaContext([aws_request_id=r-1,log_group_name=/aws/lambda/greet,log_stream_name={stream},function_name=greet,"
    )


def test_a_call_that_says_nothing_has_a_context_all_the_same(greet):
    seen = greet(CONTEXT, {"AWS_REGION": "eu-west-1"}).call().value
    assert seen["function_version"] == "$LATEST" and seen["client_context"] is None
    assert seen["invoked_function_arn"] == "arn:aws:lambda:eu-west-1:000000000000:function:greet"
    assert seen["w3c"] == {} and seen["tenant_id"] is None


def test_a_client_context_that_is_no_json_fails_the_call(greet):
    given = {"lambda": {"function_arn": ARN, "version": "1", "client_context": "{"}}
    kind, words, _ = failed(greet(CONTEXT).call(**given))
    assert kind == "Runtime.LambdaContextUnmarshalError"
    assert words.startswith("Unable to parse Client Context JSON: ")


def test_the_environment_is_awss(greet, task, packages):
    guest = greet(
        """
        import os, time
        AT_IMPORT = dict(os.environ)
        def handler(event, context):
            return [AT_IMPORT, dict(os.environ), time.tzname[0], context.log_stream_name]
        """,
        {
            "AWS_REGION": "eu-west-1",
            "LD_LIBRARY_PATH": "/mine",
            "AWS_EXECUTION_ENV": "forged",
            "_HANDLER": "x",
        },
    )
    before, first, zone, stream = guest.call().value
    expected = {
        "AWS_EXECUTION_ENV": "AWS_Lambda_python3.12",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "AWS_LAMBDA_FUNCTION_NAME": "greet",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_REGION": "eu-west-1",
        "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/greet",
        "LAMBDA_RUNTIME_DIR": "/var/runtime",
        "LAMBDA_TASK_ROOT": str(task),
        "TZ": ":UTC",
        "_HANDLER": "main.handler",
        "PATH": f"{packages}/bin:/usr/bin:/opt/bin",
        "LD_LIBRARY_PATH": "/mine",
    }
    assert expected.items() <= before.items() and "AWS_LAMBDA_LOG_FORMAT" not in before
    assert (zone, stream) == ("UTC", first["AWS_LAMBDA_LOG_STREAM_NAME"])
    assert before["_X_AMZN_TRACE_ID"] == first["_X_AMZN_TRACE_ID"]
    given = {"function_arn": ARN, "version": "3", "trace_id": "Root=1-2-3"}
    _, second, _, stream = guest.call(**{"lambda": given}).value
    assert second["_X_AMZN_TRACE_ID"] == "Root=1-2-3"
    assert second["AWS_LAMBDA_FUNCTION_VERSION"] == "3"
    assert second["AWS_LAMBDA_LOG_STREAM_NAME"] == stream and "[3]" in stream
    third = guest.call().value[1]
    assert third == first


LOGGING = """
    import logging
    logging.basicConfig(level="DEBUG", format="ours")
    log = logging.getLogger("a.b")
    def handler(event, context):
        log.info("quiet")
        log.warning("said %s", 1)
        root = logging.getLogger()
        root.setLevel("INFO")
        log.info("two\\nlines")
        root.setLevel("WARNING")
        context.log("as it is\\n")
        return [type(one).__name__ for one in root.handlers]
"""


def test_the_root_logger_has_awss_handler(greet):
    answer = greet(LOGGING).call(id="r-1")
    assert answer.value == ["LambdaLoggerHandler"] and answer.text("stderr") == ""
    time = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    said = rf"\[WARNING\]\t{time}\tr-1\tsaid 1\n\[INFO\]\t{time}\tr-1\ttwo\nlines\nas it is\n"
    assert re.fullmatch(said, answer.text("stdout"))


def test_the_log_is_json_where_the_function_asks_for_it(greet, task):
    guest = greet(
        """
        import logging
        def handler(event, context):
            logging.getLogger("a.b").info("said %s", 1, extra={"k": 2, "odd": {1}})
            logging.debug("quiet")
            logging.warning({"an": "object"})
            try: 1 / 0
            except Exception: logging.exception("bad")
            raise ValueError("x")
        """,
        json_level="INFO",
    )
    lines = [json.loads(line) for line in guest.call(id="r-1").text("stdout").splitlines()]
    assert all(re.fullmatch(r"20[\d-]{8}T[\d:]{8}Z", line.pop("timestamp")) for line in lines)
    frame = lines[2].pop("stackTrace")
    assert frame[0].startswith(f'  File "{task}/main.py", line 7, in handler\n    try: 1 / 0\n')
    error = f'  File "{task}/main.py", line 9, in handler\n    raise ValueError("x")\n'
    of_root = {"logger": "root", "requestId": "r-1"}
    assert lines == [
        {
            "level": "INFO",
            "message": "said 1",
            "logger": "a.b",
            "requestId": "r-1",
            "k": 2,
            "odd": "{1}",
        },
        {"level": "WARNING", "message": {"an": "object"}} | of_root,
        {
            "level": "ERROR",
            "message": "bad",
            "errorType": "ZeroDivisionError",
            "errorMessage": "division by zero",
            "location": f"{task}/main.py:handler:8",
        }
        | of_root,
        {
            "level": "ERROR",
            "errorMessage": "x",
            "errorType": "ValueError",
            "requestId": "r-1",
            "stackTrace": [error],
        },
    ]


def test_a_function_from_a_zygote_that_has_logged_has_awss_handler_alone(zygote, task):  # noqa: F811
    zygote.imports("logging")
    (task / "main.py").write_text(
        "import logging\ndef handler(e, c):\n logging.warning('w')\n"
        " return [type(one).__name__ for one in logging.getLogger().handlers]\n"
    )
    guest = zygote.fork()
    assert guest.load(**aws()).kind == "loaded"
    answer = guest.call(id="r-1")
    assert answer.value == ["LambdaLoggerHandler"]
    assert answer.text("stdout").endswith("\tr-1\tw\n") and not answer.text("stderr")
    native = zygote.fork()
    assert native.load().kind == "loaded"
    assert native.call().value == ["LogHandler"]


STREAMS = """
    import os, types

    def handler(event, context):
        for part in event:
            print("yields")
            yield eval(part)

    async def later(event, context):
        import asyncio
        for part in event:
            await asyncio.sleep(0)
            yield eval(part)

    def wrapped(event, context):
        return handler(event, context)
"""


class Streaming:
    """Calls a guest as one does who reads the answer as a stream."""

    def __init__(self, guest) -> None:
        self.guest = guest

    def call(self, event=None):
        return self.guest.call(event, **{"lambda": {"streams": True}})


@pytest.mark.parametrize("function", ["handler", "later", "wrapped"])
def test_a_generator_yields_its_answer_in_parts(greet, function):
    guest = Streaming(greet(STREAMS, handler=f"main.{function}"))
    answer = guest.call(["'ü'", "b'\\xff'", "''", "bytearray(2)", "memoryview(b'end')"])
    assert answer.kind == "done" and answer.body == b""
    assert answer.parts == ["ü".encode(), b"\xff", bytes(2), b"end"]
    assert guest.call([]).parts == []
    # What comes before a failure is there.
    failing = guest.call(["'one'", "1 / 0", "'two'"])
    assert failed(failing)[0] == "ZeroDivisionError" and failing.parts == [b"one"]
    refused = guest.call(["'one'", "{'a': 1}"])
    words = "Unable to marshal response: a part of a stream is bytes or text, and not dict"
    assert failed(refused)[:2] == ("Runtime.MarshalError", words) and refused.parts == [b"one"]
    assert guest.call(["'on'"]).parts == [b"on"], "the instance goes on"


def test_a_forked_child_that_goes_on_with_a_stream_sends_nothing(greet):
    guest = Streaming(
        greet(
            """
        import os
        def handler(event, context):
            yield "one"
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                yield "two"
            else:
                yield "of the child"
                os._exit(0)
        """
        )
    )
    assert guest.call().parts == [b"one", b"two"]


def test_a_stream_that_is_left_is_closed(greet):
    guest = Streaming(
        greet(
            """
        ended = []
        def handler(event, context):
            if event:
                return ended
            return stream()
        def stream():
            try:
                yield 1
            finally:
                ended.append("closed")
        """
        )
    )
    assert failed(guest.call())[0] == "Runtime.MarshalError"
    assert guest.call(True).value == ["closed"]
