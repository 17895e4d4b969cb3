"""The guest beside `awslambdaric`, AWS's own runtime for Python, which the same functions are given
to: over an imitation of its Runtime API."""

import http.server
import json
import os
import subprocess
import textwrap
import threading
import time

import pytest

from conftest import PATIENCE, PYTHON, skip
from test_aws import aws

EVENT = "/2018-06-01/runtime/invocation/"
CLIENT = {"client": {"app_title": "t", "x": 1}, "custom": {"a": 1}, "env": {"l": "de"}}
ARN = "arn:aws:lambda:us-east-1:123456789012:function:greet"

CODE = """
import collections, decimal, json, logging, sys
Point = collections.namedtuple("Point", "x y")
class Mine(Exception):
    class Inner(Exception): ...
def deeper():
    raise Mine.Inner("inner\\nline")
def raises():
    try:
        1 / 0
    except ZeroDivisionError as error:
        deeper()
def logs():
    logging.getLogger("a.b").warning("w %s", 1)
    logging.info("quiet")
    logging.getLogger().setLevel("DEBUG")
    logging.debug("two\\nlines")
    logging.getLogger().setLevel("WARNING")
    try:
        [][1]
    except IndexError:
        logging.exception("bad")
def shown(context):
    said = repr(context).replace(context.log_stream_name, "STREAM")
    it = context.client_context
    return [said, it.client.app_title, it.client.app_version_name, it.custom, it.env]
class Odd:
    def __str__(self): return "odd"
def handler(event, context):
    return eval(event)
"""

CALLS = [
    "raises()", "1 / 0", "None", "{'a': [1, 2.5, 'ü', True], 3: None}", "Point(1, 2)",
    "float('nan')",
    "[decimal.Decimal('1.10'), decimal.Decimal('-NaN'), 10 ** 30]", "{'a': b'bytes'}", "b'raw'",
    "{1}", "object()", "{(1,): 2}", "{'a': b'\\xff'}", "Odd()", "logs()", "print('said')",
    "exec('raise KeyError(3)')", "exec('raise ExceptionGroup(\"g\", [ValueError(1)])')",
    "exec('assert False')", "json.loads('{')", "(x for x in ())", "shown(context)", "[].x",
    "exec('raise Mine')",
]  # fmt: skip


class Api:
    """A Runtime API that hands out events and keeps what comes back for them."""

    def __init__(self, events: list[bytes]) -> None:
        posts: list[tuple[str, bytes]] = []
        left, done = list(enumerate(events)), threading.Event()

        class Door(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if not left:
                    done.set()
                    time.sleep(PATIENCE)
                    return
                number, body = left.pop(0)
                self.answer(
                    200,
                    body,
                    {
                        "Lambda-Runtime-Aws-Request-Id": f"call-{number + 1}",
                        "Lambda-Runtime-Deadline-Ms": str(int(time.time() * 1000) + 5000),
                        "Lambda-Runtime-Invoked-Function-Arn": ARN,
                        "Lambda-Runtime-Client-Context": json.dumps(CLIENT),
                        "Content-Type": "application/json",
                    },
                )

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                posts.append((self.path, body))
                self.answer(202, b"", {})

            def answer(self, status: int, body: bytes, headers: dict) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": len(body)}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *said: object) -> None: ...

        self.posts, self.done = posts, done
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def awss(task):
    """Runs the function under AWS's runtime: what it posts, what it prints, its exit status."""
    if subprocess.run([PYTHON, "-c", "import awslambdaric"], capture_output=True).returncode:
        skip("awslambdaric", f"{PYTHON} has no awslambdaric")

    def awss(events: list[bytes], handler: str = "main.handler", **more: str):
        api = Api(events)
        variables = {
            "PATH": os.environ["PATH"],
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api.server.server_port}",
            "PYTHONPATH": str(task),
            "PYTHONDONTWRITEBYTECODE": "1",
            "AWS_EXECUTION_ENV": "AWS_Lambda_python3.12",
            "AWS_LAMBDA_FUNCTION_NAME": "greet",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
            "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/greet",
            "AWS_LAMBDA_LOG_STREAM_NAME": "STREAM",
        }
        process = subprocess.Popen(
            [PYTHON, "-m", "awslambdaric", handler],
            env=variables | more,
            cwd=task,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while process.poll() is None and not api.done.wait(0.02):
            pass
        status = process.poll()
        process.kill()
        said, _ = process.communicate()
        api.server.shutdown()
        return api.posts, said.decode(), status

    return awss


def of_aws(post: tuple[str, bytes]) -> object:
    """What AWS's runtime said of a call or of its start, as the guest's answers are compared."""
    path, body = post
    if not path.endswith("/error"):
        return body
    said = json.loads(body)
    frames = [frame for frame in said["stackTrace"] if "importlib" not in frame]
    return said["errorType"], said["errorMessage"], frames


def of_ours(answer) -> object:
    if answer.kind == "done":
        return answer.body
    assert answer.kind == "failed"
    return answer.header["error_type"], answer.message, answer.header["traceback"]


def untimed(text: str) -> list[str]:
    """Lines of a log, without what is not the same twice. On its standard output AWS's runtime ends
    the lines of an error as old terminals do."""
    lines = []
    for line in text.replace("\r", "\n").splitlines():
        if line.startswith("{"):
            line = json.dumps(json.loads(line) | {"timestamp": ""})
        parts = line.split("\t")
        if len(parts) == 4:
            parts[1] = ""
        lines.append("\t".join(parts))
    return lines


@pytest.mark.parametrize("level", [None, "INFO"])
def test_calls_come_to_the_same(task, start, awss, level):
    (task / "main.py").write_text(CODE)
    events = [json.dumps(call).encode() for call in CALLS]
    json_level = {} if level is None else {"json_level": level}
    variables = {"AWS_LAMBDA_LOG_FORMAT": "JSON", "AWS_LAMBDA_LOG_LEVEL": "INFO"}
    posts, said, _ = awss(events, **(variables if level else {}))
    assert len(posts) == len(events)
    guest = start()
    assert guest.load(**aws(**json_level)).kind == "loaded"
    given = {"function_arn": ARN, "version": "$LATEST", "client_context": json.dumps(CLIENT)}
    ours = [guest.call(body=event, **{"lambda": given}) for event in events]
    for call, post, answer in zip(CALLS, posts, ours, strict=True):
        assert of_ours(answer) == of_aws(post), call
    assert untimed("".join(answer.text("stdout") for answer in ours)) == untimed(said)


@pytest.mark.parametrize(
    "code, handler",
    [
        (None, "main.handler"),
        ("import nosuchpkg", "main.handler"),
        ("from json import nosuchname", "pkg/main.handler"),
        ("def handler(e c):", "main.handler"),
        ("x = 1", "main.missing"),
        ("x = 1", "nodot"),
        ("x = 1", "..main.x"),
        ("def f():\n  raise ValueError('at import')\nf()", "main.handler"),
    ],
)
def test_what_fails_before_the_first_call_is_told_the_same(task, start, awss, code, handler):
    if code is not None:
        for file in (task / "main.py", task / "pkg" / "main.py"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(textwrap.dedent(code))
    [post], said, status = awss([], handler)
    assert status == 1 and post[0].endswith("/init/error")
    answer = start().load(**aws(handler))
    assert of_ours(answer) == of_aws(post)
    assert untimed(answer.text("stdout")) == own(untimed(said))


def own(lines: list[str]) -> list[str]:
    """Without the words about new releases of AWS's runtime, and the import system's frames."""
    left: list[str] = []
    for line in lines:
        of_source = line.startswith("\u00a0" * 4) and left and left[-1] == ""
        is_theirs = "LAMBDA_WARNING" in line or "importlib" in line or of_source
        left.append("" if is_theirs else line)
    return [line for line in left if line]


@pytest.mark.parametrize("code", ["3", "", "'words'"])
def test_what_ends_the_interpreter_ends_it_with_the_same_status(task, start, awss, code):
    (task / "main.py").write_text(f"import sys\ndef handler(e, c): sys.exit({code})\n")
    posts, _, status = awss([b"{}"])
    assert posts == []
    guest = start()
    assert guest.load(**aws()).kind == "loaded"
    words = f"with error: exit status {status}" if status else "without providing a reason"
    assert of_ours(guest.call()) == ("Runtime.ExitError", f"Runtime exited {words}", [])
