"""Functions with a `bootstrap` that asks the runtime API for its events: `provided.al2023`."""

import base64
import io
import json
import os
import pathlib
import time
import zipfile

import pytest
from service import ROLE, call, client, name, refused

service = client()
PYTHON = "#!/usr/bin/python3\n"
ASK = """
import json, os, sys, time, urllib.request
BASE = "http://" + os.environ["AWS_LAMBDA_RUNTIME_API"] + "/2018-06-01/runtime/"
def next_one():
    with urllib.request.urlopen(BASE + "invocation/next") as got:
        return got.headers["Lambda-Runtime-Aws-Request-Id"], got.headers, got.read()
def say(path, body):
    asked = urllib.request.Request(BASE + path, body, method="POST")
    return urllib.request.urlopen(asked).status
def answer(id, body, kind="response"):
    return say(f"invocation/{id}/{kind}", body)
"""


def program(code, **said):
    """Makes a function of a Python program, and returns its name."""
    return of({"bootstrap": (PYTHON + ASK + code).encode()}, **said)


def of(files, mode=0o755, **said):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(entry, data, compresslevel=1)
    called = name()
    said = {"Runtime": "provided.al2023", "Role": ROLE, "Handler": "any.text"} | said
    code = {"ZipFile": packed.getvalue()}
    service.create_function(FunctionName=called, Code=code, **said)
    return called


def failed(called, event=None):
    """Calls it; what it said has failed, and the end of its log."""
    said = service.invoke(FunctionName=called, Payload=json.dumps(event), LogType="Tail")
    assert said.get("FunctionError") == "Unhandled", said["Payload"].read()
    return json.loads(said["Payload"].read()), base64.b64decode(said["LogResult"]).decode()


def test_a_program_is_given_events_and_its_answers_pass_unchanged():
    called = program(
        """
said = len(sys.argv), os.environ["_HANDLER"], os.environ.get("AWS_EXECUTION_ENV"), os.getcwd()
while True:
    id, headers, event = next_one()
    print("an event of", len(event), flush=True)
    left = int(headers["Lambda-Runtime-Deadline-Ms"]) - time.time() * 1000
    if event == b'"about"':
        event = json.dumps([said, left, headers["Lambda-Runtime-Invoked-Function-Arn"]]).encode()
    answer(id, event)
""",
        Timeout=7,
    )
    own, left, arn = call(service, called, "about")
    assert own == [1, "any.text", None, "/var/task"]
    assert 0 < left <= 7000 and arn.endswith(f":function:{called}")
    for event in (b'{"a" : 1}', b"[1,2 ]", json.dumps("x" * 5_000_000).encode()):
        said = service.invoke(FunctionName=called, Payload=event, LogType="Tail")
        assert said["Payload"].read() == event
    log = base64.b64decode(said["LogResult"]).decode()
    assert "an event of 5000002\n" in log
    assert "START RequestId: " in log and "\nREPORT RequestId: " in log
    shown = service.get_function_configuration(FunctionName=called)
    assert (shown["Runtime"], shown["Handler"]) == ("provided.al2023", "any.text")


def test_what_a_program_says_has_failed_is_the_payload():
    called = program(
        """
while True:
    id, headers, event = next_one()
    answer(id, event, "error")
"""
    )
    own = {"errorType": "Mine", "errorMessage": "no", "stackTrace": ["a"], "more": {"b": 1}}
    payload, log = failed(called, own)
    assert payload == own
    assert "Status: error\tError Type: Mine" in log
    own = {"errorType": "Bad.Start", "errorMessage": "no table", "stackTrace": []}
    called = program(f"say('init/error', {json.dumps(own).encode()!r})\nsys.exit(1)")
    assert failed(called)[0] == own


@pytest.mark.parametrize(
    "code, why",
    [
        ("sys.exit(3)", "Runtime exited with error: exit status 3"),
        ("next_one(); sys.exit(0)", "Runtime exited without providing a reason"),
        ("next_one(); os.kill(os.getpid(), 9)", "Runtime exited with error: signal: killed"),
        ("next_one(); a = b'x' * (1 << 30)", "Runtime exited with error: signal: killed"),
    ],
)
def test_a_program_that_ends_is_told_in_awss_words(code, why):
    called = program(code)
    for _ in range(2):
        payload, log = failed(called)
        words, kind = payload["errorMessage"], payload["errorType"]
        assert words.endswith(f" Error: {why}")
        assert f"{words}\n{kind}\n" in log
        # Where the kernel ends a whole sandbox for its memory, the worker knows it.
        assert kind == "Runtime.ExitError" or (kind == "Runtime.OutOfMemory" and "1 << 30" in code)


def test_a_program_that_does_not_answer_is_ended_in_time():
    slow = """
while True:
    id, _, event = next_one()
    time.sleep(json.loads(event))
    answer(id, str(os.getpid()).encode())
"""
    called = program(slow, Timeout=2)
    call(service, called, 0)
    begun = time.monotonic()
    payload, log = failed(called, 60)
    assert payload["errorType"] == "Sandbox.Timedout" and time.monotonic() - begun < 10
    assert "Task timed out after 2.00 seconds" in log
    assert call(service, called, 0) > 0
    payload, _ = failed(program("time.sleep(60)", Timeout=1))
    assert payload["errorType"] == "Sandbox.Timedout"


def test_a_program_that_cannot_start_is_told_and_a_machine_is_refused():
    words = "Error: Couldn't find valid bootstrap(s): [/var/task/bootstrap /opt/bootstrap]"
    payload, _ = failed(of({"other": b""}))
    assert payload["errorType"] == "Runtime.InvalidEntrypoint"
    assert payload["errorMessage"].endswith(words)
    payload, _ = failed(of({"bootstrap": PYTHON.encode()}, mode=0o644))
    denied = "Error: fork/exec /var/task/bootstrap: permission denied"
    assert payload["errorMessage"].endswith(denied)
    for more in ({}, {"LAMBSWOOL_FALLBACK": "container"}):
        machine = {"Variables": {"LAMBSWOOL_ISOLATION": "microvm"} | more}
        with refused("InvalidParameterValueException", 400, "LAMBSWOOL_ISOLATION"):
            program("next_one()", Environment=machine)


def test_a_program_reaches_itself_and_nothing_else():
    called = program(
        """
import socket
def reached(host, port):
    with socket.socket() as one:
        one.settimeout(2)
        return os.strerror(one.connect_ex((host, port)))
seen = [reached("192.0.2.7", 80), reached("127.0.0.1", 22)]
seen.append(sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else [])
while True:
    id, _, event = next_one()
    answer(id, json.dumps(seen).encode())
"""
    )
    seen = call(service, called)
    assert seen[:2] == ["Network is unreachable", "Connection refused"], seen


def test_an_updated_program_may_become_a_python_function_and_back():
    called = program("while True:\n    id, _, event = next_one()\n    answer(id, b'1')")
    assert call(service, called) == 1
    changed = {"FunctionName": called, "Runtime": "python3.11", "Handler": "app.handler"}
    service.update_function_configuration(**changed)
    assert "FunctionError" in service.invoke(FunctionName=called, Payload=b"1")
    service.update_function_configuration(FunctionName=called, Runtime="provided.al2")
    assert call(service, called) == 1


@pytest.mark.skipif("GO_PROGRAM" not in os.environ, reason="the test around it has told of it")
def test_a_go_program_runs_unchanged():
    with open(os.environ["GO_PROGRAM"], "rb") as file:
        called = of({"bootstrap": file.read()}, Timeout=9, MemorySize=128)
    said = [call(service, called, {"name": "you"}) for _ in range(3)]
    assert {one["greeting"] for one in said} == {"Hello you"}
    assert len({one["id"] for one in said}) == 3 and len({one["pid"] for one in said}) == 1
    assert all(0 < one["left"] <= 9000 for one in said)
    payload, _ = failed(called, {})
    assert payload == {"errorMessage": "who is it?", "errorType": "errorString"}
    payload, log = failed(called, {"name": "panic"})
    assert (payload["errorMessage"], payload["errorType"]) == ("as asked", "string")
    assert payload["stackTrace"] and "panic" in log
    assert call(service, called, {"name": "again"})["greeting"] == "Hello again"


@pytest.mark.skipif("RUST_PROGRAM" not in os.environ, reason="the test around it has told of it")
def test_a_rust_program_runs_unchanged():
    with open(os.environ["RUST_PROGRAM"], "rb") as file:
        called = of({"bootstrap": file.read()}, Timeout=9, MemorySize=128)
    said = [call(service, called, {"name": "you"}) for _ in range(3)]
    assert {one["greeting"] for one in said} == {"Hello you"}
    assert len({one["id"] for one in said}) == 3 and len({one["pid"] for one in said}) == 1
    assert all(0 < one["deadline"] - time.time() * 1000 <= 9000 for one in said)
    payload, _ = failed(called, {})
    assert payload["errorMessage"] == "who is it?"
    payload, log = failed(called, {"name": "panic"})
    assert "as asked" in payload["errorMessage"] and "as asked" in log
    assert call(service, called, {"name": "again"})["greeting"] == "Hello again"


@pytest.mark.skipif("NODE" not in os.environ, reason="the test around it has told of it")
def test_nodejs_runs_where_the_archive_brings_it():
    page = pathlib.Path(__file__).parents[3] / "docs" / "user" / "lambda.md"
    files = {
        "node": pathlib.Path(os.environ["NODE"]).read_bytes(),
        "bootstrap": page.read_text().partition("```js\n")[2].partition("```")[0].encode(),
        "app.js": b"""
exports.run = async (event) => {
  if (event.name === undefined) throw new TypeError("who is it?");
  return { greeting: `Hello ${event.name}`, pid: process.pid };
};
""",
    }
    called = of(files, Handler="app.run", Timeout=20, MemorySize=512)
    said = [call(service, called, {"name": "you"}) for _ in range(2)]
    assert [one["greeting"] for one in said] == ["Hello you"] * 2
    assert len({one["pid"] for one in said}) == 1
    payload, _ = failed(called, {})
    assert (payload["errorType"], payload["errorMessage"]) == ("TypeError", "who is it?")
    assert "at exports.run (/var/task/app.js:3:" in "".join(payload["stackTrace"])


@pytest.mark.skipif("AWSLAMBDARIC" not in os.environ, reason="the test around it has told of it")
def test_awss_own_runtime_for_python_runs_unchanged():
    top = pathlib.Path(os.environ["AWSLAMBDARIC"]).parent.parent
    files = {
        "bootstrap": b"#!/usr/bin/python3\n"
        b"import os\nfrom awslambdaric.__main__ import main\n"
        b"main(['bootstrap', os.environ['_HANDLER']])\n",
        "app.py": b"""
import os
def run(event, context):
    if event == "raise":
        raise ValueError("no")
    print("seen", event)
    return [event, context.aws_request_id, context.memory_limit_in_mb,
            context.get_remaining_time_in_millis(), os.getpid()]
""",
    }
    packages = ("awslambdaric/**/*", "simplejson/**/*", "snapshot_restore_py.py", "runtime_client*")
    for file in [file for pattern in packages for file in top.glob(pattern)]:
        if file.is_file() and "__pycache__" not in file.parts:
            files[str(file.relative_to(top))] = file.read_bytes()
    called = of(files, Handler="app.run", Timeout=10, MemorySize=256)
    event, _, memory, left, pid = call(service, called, {"a": [1]})
    assert (event, memory) == ({"a": [1]}, "256") and 0 < left <= 10_000
    payload, log = failed(called, "raise")
    assert (payload["errorType"], payload["errorMessage"]) == ("ValueError", "no")
    assert "[ERROR] ValueError: no" in log
    assert call(service, called, 2)[4] == pid


def test_a_program_streams_its_answer():
    called = program(
        """
import http.client
host = os.environ["AWS_LAMBDA_RUNTIME_API"]
def parts():
    for number in range(3):
        yield f"row {number}\\n".encode()
        time.sleep(0.2)
while True:
    id, _, event = next_one()
    line = http.client.HTTPConnection(host)
    mode = {"Lambda-Runtime-Function-Response-Mode": "streaming"}
    path = f"/2018-06-01/runtime/invocation/{id}/response"
    line.request("POST", path, parts(), mode, encode_chunked=False)
    assert line.getresponse().status == 202
"""
    )
    stream = service.invoke_with_response_stream(FunctionName=called)["EventStream"]
    begun, came = time.monotonic(), []
    for event in stream:
        if "PayloadChunk" in event:
            came.append((time.monotonic() - begun, event["PayloadChunk"]["Payload"]))
    assert [part for _, part in came] == [b"row 0\n", b"row 1\n", b"row 2\n"]
    assert came[2][0] - came[0][0] > 0.3
    said = service.invoke(FunctionName=called)
    assert said["Payload"].read() == b"row 0\nrow 1\nrow 2\n"
