"""Programs that ask the runtime API for their events: good ones, and those that mean harm."""

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import GUEST, PYTHON, Answer, Guest

AWS = {
    "lambda": {"handler": "any.text", "runtime": "provided.al2023"},
    "version": "$LATEST",
    "memory_mb": 128,
}

CLIENT = """
import http.client, json, os, socket, sys, time
HOST, PORT = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
BASE = "/2018-06-01/runtime/"
LINE = http.client.HTTPConnection(HOST, int(PORT))
def ask(method, path, body=None, headers={}, line=LINE):
    line.request(method, BASE + path, body, headers)
    answer = line.getresponse()
    return answer.status, answer.headers, answer.read()
def next_one(line=LINE):
    status, headers, event = ask("GET", "invocation/next", line=line)
    assert status == 200, (status, event)
    return headers["Lambda-Runtime-Aws-Request-Id"], headers, event
def answer(id, body, kind="response", headers={}, line=LINE):
    return ask("POST", f"invocation/{id}/{kind}", body, headers, line)
POST, CHUNKED = b"POST / HTTP/1.1\\r\\n", b"Transfer-Encoding: chunked\\r\\n"
def raw(data, wait=True):
    with socket.create_connection((HOST, int(PORT))) as one:
        one.sendall(data)
        got = b""
        while wait and (piece := one.recv(65536)):
            got += piece
        return got
"""

ECHO = """
while True:
    id, _, event = next_one()
    answer(id, event)
"""


@pytest.fixture
def program(start: Callable[..., Guest], task: Path) -> Callable[..., Guest]:
    """Starts a bootstrap, which is as good as `CLIENT` and its own code."""

    def program(code: str, *, head: str = f"#!{PYTHON} -IS\n", mode: int = 0o755) -> Guest:
        path = task / "bootstrap"
        path.write_text(head + CLIENT + code)
        path.chmod(mode)
        return start()

    return program


@pytest.fixture
def running(program: Callable[..., Guest]) -> Callable[..., Guest]:
    """`program`, and it has asked for its first event."""

    def running(code: str) -> Guest:
        guest = program(code)
        answer = guest.load(**AWS)
        assert answer.kind == "loaded", answer.header
        return guest

    return running


def failed(answer: Answer) -> tuple[str, str]:
    assert answer.kind == "failed", (answer.header, answer.body)
    return answer.header["error_type"], answer.header["message"]


def test_an_event_and_its_answer_pass_through_as_they_are(running):
    guest = running(ECHO)
    for body in (b'{"a": 1}', b"[1,2 ]", b'"\xc3\xa9"', b"x" * 3_000_000, b"\x00\xff\r\n\r\n"):
        said = guest.call(body=body)
        assert (said.kind, said.body) == ("done", body), said.header
    assert guest.call(body=b"").body == b"{}", "no event is an empty object"


def test_headers_say_whose_event_it_is_and_until_when(running):
    guest = running(
        """
while True:
    id, headers, event = next_one()
    answer(id, json.dumps(dict(headers.items())))
"""
    )
    given = {
        "function_arn": "arn:aws:lambda:eu-west-1:1:function:f",
        "trace_id": "Root=1",
        "client_context": '{"custom":\n"\u00e9"}',
        "tenant_id": "t-1",
    }
    before = time.time() * 1000
    headers = guest.call({}, id="r-1", remaining_ms=5000, **{"lambda": given}).value
    assert headers["Lambda-Runtime-Aws-Request-Id"] == "r-1"
    deadline = int(headers["Lambda-Runtime-Deadline-Ms"])
    assert before + 4900 < deadline < time.time() * 1000 + 5001
    assert headers["Lambda-Runtime-Invoked-Function-Arn"] == given["function_arn"]
    assert headers["Lambda-Runtime-Trace-Id"] == "Root=1"
    context = headers["Lambda-Runtime-Client-Context"].encode("latin-1").decode()
    assert json.loads(context) == {"custom": "\u00e9"}
    assert headers["Lambda-Runtime-Aws-Tenant-Id"] == "t-1"
    assert headers["Content-Type"] == "application/json"
    assert "Lambda-Runtime-Client-Context" not in guest.call({}).value


def test_its_variables_are_awss_and_not_pythons(running, task):
    guest = running(
        """
while True:
    id, _, event = next_one()
    answer(id, json.dumps([dict(os.environ), os.getcwd(), sys.argv]))
"""
    )
    variables, folder, arguments = guest.call({}).value
    assert variables["_HANDLER"] == "any.text"
    assert variables["LAMBDA_TASK_ROOT"] == folder == str(task)
    assert arguments == [f"{task}/bootstrap"]
    assert variables["AWS_LAMBDA_FUNCTION_NAME"] == "greet"
    assert variables["AWS_LAMBDA_FUNCTION_VERSION"] == "$LATEST"
    assert "[$LATEST]" in variables["AWS_LAMBDA_LOG_STREAM_NAME"]
    for name in ("AWS_EXECUTION_ENV", "PYTHONPATH", "_X_AMZN_TRACE_ID"):
        assert name not in variables


def test_what_it_prints_is_the_calls_log(running):
    guest = running(
        'print("starting", flush=True)\n'
        + ECHO.replace("answer(", "print(event); sys.stdout.flush(); answer(")
    )
    assert "b'1'" in guest.call(1).text("stderr")


def test_what_it_says_has_failed_reaches_the_caller_as_it_wrote_it(running):
    guest = running(
        """
while True:
    id, _, event = next_one()
    body, headers = json.loads(event)
    answer(id, body, "error", headers)
"""
    )
    own = '{"errorType": "Mine",\n "errorMessage": "no", "stackTrace": [{"path": "a"}], "more": 1}'
    said = guest.call([own, {}])
    assert failed(said) == ("Mine", "no") and said.header["payload"] == own
    said = guest.call([own, {"Lambda-Runtime-Function-Error-Type": "Runtime.Other"}])
    assert failed(said) == ("Runtime.Other", "no")
    for bad in ("", "no JSON", "[" * 5000):
        said = guest.call([bad, {}])
        assert failed(said) == ("Runtime.Unknown", "")
        assert json.loads(said.header["payload"])["errorType"] == "Runtime.Unknown"
    long = json.dumps({"errorMessage": "x" * 100_000, "errorType": "Long"})
    said = guest.call([long, {}])
    assert failed(said)[0] == "Long" and "more characters" in said.message
    assert guest.call([json.dumps(1), {}]).header["payload"] == "1"


def test_a_start_that_fails_is_told_as_it_was_written(program):
    own = '{"errorType":"Bad.Start","errorMessage":"no table","stackTrace":[]}'
    guest = program(f"print(ask('POST', 'init/error', {own!r}))\nsys.exit(1)")
    said = guest.load(**AWS)
    assert failed(said) == ("Bad.Start", "no table") and said.header["payload"] == own


@pytest.mark.parametrize(
    "code, words",
    [
        ("sys.exit(3)", "with error: exit status 3"),
        ("sys.exit(0)", "without providing a reason"),
        ("os.kill(os.getpid(), 9)", "with error: signal: killed"),
        ("os.kill(os.getpid(), 11)", "with error: signal: segmentation fault"),
    ],
)
def test_a_program_that_ends_fails_its_start_or_its_call(program, code, words):
    expected = ("Runtime.ExitError", f"Runtime exited {words}")
    assert failed(program(code).load(**AWS)) == expected
    guest = program(f"next_one()\n{code}")
    assert guest.load(**AWS).kind == "loaded"
    assert failed(guest.call({})) == expected


def test_a_program_that_ended_after_its_answer_is_started_again(running):
    guest = running("id, _, event = next_one()\nanswer(id, str(os.getpid()))\nsys.exit(0)")
    seen = set()
    for _ in range(3):
        seen.add(guest.call({}).value)
        time.sleep(0.2)
    assert len(seen) == 3


def test_a_program_that_cannot_be_started_is_told_in_awss_words(program, start, task):
    (task / "bootstrap").unlink(missing_ok=True)
    words = f"Couldn't find valid bootstrap(s): [{task}/bootstrap /opt/bootstrap]"
    assert failed(start().load(**AWS)) == ("Runtime.InvalidEntrypoint", words)
    for head, mode, why in [
        ("#!/usr/bin/env python3\n", 0o644, "permission denied"),
        ("#!/nowhere/sh\n", 0o755, "no such file or directory"),
        ("no first line\n", 0o755, "exec format error"),
    ]:
        said = program(ECHO, head=head, mode=mode).load(**AWS)
        words = f"fork/exec {task}/bootstrap: {why}"
        assert failed(said) == ("Runtime.InvalidEntrypoint", words)


def test_an_answer_that_is_too_long_is_refused_and_told(running):
    guest = running(
        """
while True:
    id, _, event = next_one()
    status, _, body = answer(id, b"x" * json.loads(event))
    print(status, flush=True)
"""
    )
    limit = 6_291_556
    assert len(guest.call(limit).body) == limit
    kind, words = failed(guest.call(limit + 1))
    assert kind == "Function.ResponseSizeTooLarge" and str(limit) in words
    assert guest.call(3).body == b"xxx", "it goes on"


def test_an_answer_counts_for_its_own_event_and_once(running):
    guest = running(
        """
said, last = [], "none"
while True:
    id, _, event = next_one()
    said.append(answer("other", "wrong")[0])
    said.append(answer(last, "old")[0])
    said.append(ask("GET", "invocation/next")[0])
    said.append(ask("POST", "init/error", "{}")[0])
    answer(id, json.dumps(said))
    said = [answer(id, "again")[0], answer(id, "again", "error")[0]]
    last = id
"""
    )
    assert guest.call({}).value == [400, 400, 403, 403]
    for _ in range(2):
        assert guest.call({}).value == [403, 403, 400, 400, 403, 403]


def test_what_stands_behind_a_request_is_answered_in_its_turn(running):
    guest = running(
        """
line = socket.create_connection((HOST, int(PORT)))
NEXT = b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\\r\\n\\r\\n"
def post(id, body):
    path = b"/2018-06-01/runtime/invocation/%s/response" % id
    return b"POST %s HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (path, len(body), body)
# Each answer is guessed before its event was handed out.
line.sendall(NEXT + post(b"call-1", b"1") + NEXT + post(b"call-2", b"2") + NEXT)
line.sendall(post(b"call-3", b"3"))
while line.recv(65536): ...
"""
    )
    assert [guest.call({}).body for _ in range(3)] == [b"1", b"2", b"3"]


HOSTILE = {
    "no HTTP": "raw(b'\\x16\\x03\\x01' + bytes(200) + b'\\r\\n\\r\\n')",
    "no first line": "raw(b'\\r\\n\\r\\n')",
    "a head without end": "raw(b'GET / HTTP/1.1\\r\\nA: ' + b'x' * (3 << 20))",
    "two lengths": "raw(POST + b'Content-Length: 1\\r\\nContent-Length: 2\\r\\n\\r\\nab')",
    "a length and chunks": ("raw(POST + CHUNKED + b'Content-Length: 5\\r\\n\\r\\n0\\r\\n\\r\\n')"),
    "a length that is none": "raw(b'POST / HTTP/1.1\\r\\nContent-Length: -1\\r\\n\\r\\n')",
    "a chunk that is none": (
        "raw(b'POST / HTTP/1.1\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\nzz\\r\\n\\r\\n')"
    ),
    "a folded header": "raw(b'GET / HTTP/1.1\\r\\nA: b\\r\\n c\\r\\n\\r\\n')",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_http_is_refused_and_its_connection_closed(running, what):
    guest = running(
        f"""
while True:
    id, _, event = next_one()
    try:
        got = {HOSTILE[what]}
    except ConnectionError:
        got = b"HTTP/1.1 400 closed"
    answer(id, json.dumps(got[:12].decode()))
"""
    )
    for _ in range(2):
        assert guest.call({}).value == "HTTP/1.1 400"


def test_other_paths_and_many_connections_change_nothing(running):
    guest = running(
        """
lines = []
while True:
    id, _, event = next_one()
    said = [ask("GET", "nothing")[0], ask("PUT", "invocation/next")[0]]
    said.append(ask("POST", "../../x/" + "y" * 5000)[0])
    for _ in range(200):
        one = socket.create_connection((HOST, int(PORT)))
        one.sendall(b"POST /2018-06-01/runtime/invocation/")
        lines.append(one)
    for _ in range(50):
        raw(b"POST / HTTP/1.1\\r\\nContent-Length: 100\\r\\n\\r\\nhalf", wait=False)
    answer(id, json.dumps(said))
    for one in lines: one.close()
    lines.clear()
"""
    )
    for _ in range(3):
        assert guest.call({}).value == [404, 404, 404]


def test_a_client_that_goes_away_while_it_waits_is_given_no_event(running):
    guest = running(
        """
gone = socket.create_connection((HOST, int(PORT)))
gone.sendall(b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\\r\\n\\r\\n")
time.sleep(0.3)
gone.close()
while True:
    id, _, event = next_one()
    answer(id, event)
"""
    )
    time.sleep(1)
    assert guest.call(7).value == 7


def test_a_child_of_the_program_may_answer_in_its_place_and_its_end_does_not_count(running):
    guest = running(
        """
while True:
    id, _, event = next_one()
    if os.fork() == 0:
        if os.fork() == 0: os._exit(7)
        line = http.client.HTTPConnection(HOST, int(PORT))
        answer(id, event, line=line)
        os._exit(5)
    os.wait()
"""
    )
    for number in range(5):
        assert guest.call(number).value == number


def test_only_a_stream_says_what_its_answer_is(running):
    guest = running(
        """
while True:
    id, _, event = next_one()
    headers = {"Content-Type": "text/html"}
    if json.loads(event):
        headers["Lambda-Runtime-Function-Response-Mode"] = "streaming"
    answer(id, event, headers=headers)
"""
    )
    types = [guest.call(streams).header["content_type"] for streams in (False, True)]
    assert types == ["application/json", "text/html"]


def test_chunks_and_trailers_are_read(running):
    guest = running(
        """
def chunked(id, trailers):
    head = f"POST /2018-06-01/runtime/invocation/{id}/response HTTP/1.1\\r\\n"
    head += "Lambda-Runtime-Function-Response-Mode: streaming\\r\\nTransfer-Encoding: chunked\\r\\n"
    body = b"\\r\\n3\\r\\n[1,\\r\\n2;x=y\\r\\n2]\\r\\n0\\r\\n"
    return head.encode() + body + trailers + b"\\r\\n"
while True:
    id, _, event = next_one()
    trailers = json.loads(event).encode()
    line = socket.create_connection((HOST, int(PORT)))
    line.sendall(chunked(id, trailers))
    line.recv(1000)
    line.close()
"""
    )
    assert guest.call("").value == [1, 2]
    # {"errorMessage":"no"}
    trailer = "Lambda-Runtime-Function-Error-Type: Mine\r\n"
    trailer += "Lambda-Runtime-Function-Error-Body: eyJlcnJvck1lc3NhZ2UiOiJubyJ9\r\n"
    assert failed(guest.call(trailer)) == ("Mine", "no")


STREAM = """
def begin(id):
    line = socket.create_connection((HOST, int(PORT)))
    line.sendall(f"POST /2018-06-01/runtime/invocation/{id}/response HTTP/1.1\\r\\n".encode())
    line.sendall(b"Lambda-Runtime-Function-Response-Mode: streaming\\r\\n")
    line.sendall(b"Content-Type: text/plain\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
    return line
def part(line, data):
    line.sendall(b"%x\\r\\n%s\\r\\n" % (len(data), data))
    time.sleep(0.1)
def end(line, trailers=b""):
    line.sendall(b"0\\r\\n" + trailers + b"\\r\\n")
    got = line.recv(1000)
    line.close()
    return got
"""


def test_a_stream_goes_out_as_it_comes_where_its_caller_reads_one(running):
    guest = running(
        STREAM
        + """
while True:
    id, _, event = next_one()
    line = begin(id)
    part(line, b"one ")
    assert answer(id, "between")[0] == 403
    part(line, b"two")
    assert b" 202 " in end(line)
"""
    )
    said = guest.call({}, **{"lambda": {"streams": True}})
    assert (said.parts, said.body) == ([b"one ", b"two"], b"")
    assert said.header["content_type"] == "text/plain"


def test_a_stream_that_its_caller_does_not_read_is_collected(running):
    guest = running(
        STREAM
        + """
while True:
    id, _, event = next_one()
    line = begin(id)
    part(line, b"one ")
    part(line, b"two")
    end(line)
"""
    )
    assert (guest.call({}).body, guest.call({}).parts) == (b"one two", [])


def test_a_stream_that_breaks_off_has_failed_behind_its_parts(running):
    guest = running(
        STREAM
        + """
while True:
    id, _, event = next_one()
    line = begin(id)
    part(line, b"one")
    if event == b'"closes"':
        line.close()
        time.sleep(0.2)
    elif event == b'"garbage"':
        line.sendall(b"no chunk\\r\\n")
        line.recv(1000)
    else:
        error = b"Lambda-Runtime-Function-Error-"
        end(line, error + b"Type: Mine\\r\\n" + error + b"Body: eyJlcnJvck1lc3NhZ2UiOiJubyJ9\\r\\n")
"""
    )
    for event, kind in [
        ("closes", "Runtime.TruncatedResponse"),
        ("garbage", "Runtime.TruncatedResponse"),
        ("trailers", "Mine"),
    ]:
        said = guest.call(event, **{"lambda": {"streams": True}})
        assert (said.parts, failed(said)[0]) == ([b"one"], kind)


def test_what_is_read_does_not_depend_on_how_it_was_cut_and_nothing_else_is_raised():
    sys.path.insert(0, str(GUEST.parent))
    try:
        from lambswool_guest.http_requests import Malformed, Reader
    finally:
        sys.path.pop(0)

    def read(pieces: list[bytes]) -> list[tuple]:
        reader, got = Reader(lambda: None, lambda _: None), []
        try:
            for piece in pieces:
                reader.feed(piece)
                while (one := reader.request()) is not None:
                    got.append((one.method, one.path, bytes(one.body), one.headers))
        except Malformed:
            got.append(("malformed",))
        return got

    whole = (
        b"GET /a?b HTTP/1.1\r\nA: b\r\n\r\n"
        b"POST /c HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
        b"POST /d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nde\r\n1;x\r\nf\r\n0\r\nT: u\r\n\r\n"
        b"GET /e HTTP/1.0\r\n\r\n"
    )
    chance = random.Random(1)

    def cut(data: bytes) -> list[bytes]:
        ends = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(9)))
        return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]

    expected = read([whole])
    assert [one[1] for one in expected] == ["/a", "/c", "/d", "/e"]
    assert [one[2] for one in expected] == [b"", b"abc", b"def", b""]
    for _ in range(300):
        assert read(cut(whole)) == expected
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        data = bytes(data)
        assert read(cut(data)) == read([data]), data
