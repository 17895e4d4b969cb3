"""Functions: made, called, changed, listed and removed."""

import base64
import contextlib
import hashlib
import json
import os
import socket
import threading
import time

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from service import ARN, ECHO, ROLE, archive, call, client, create, name, refused

service = client()


def test_a_function_is_what_its_creation_says():
    called, zipped = name(), archive(app=ECHO)
    made = service.create_function(
        FunctionName=called,
        Runtime="python3.11",
        Role=ROLE,
        Handler="app.handler",
        Code={"ZipFile": zipped},
        Description="says it again",
        Timeout=5,
        MemorySize=256,
        EphemeralStorage={"Size": 1024},
        Environment={"Variables": {"COLOUR": "blue"}},
        TracingConfig={"Mode": "Active"},
        LoggingConfig={"LogFormat": "JSON"},
        Tags={"team": "wool"},
    )
    assert made["ResponseMetadata"]["HTTPStatusCode"] == 201
    assert made["CodeSha256"] == base64.b64encode(hashlib.sha256(zipped).digest()).decode()
    assert made["CodeSize"] == len(zipped)
    expected = {
        "FunctionName": called,
        "FunctionArn": ARN + called,
        "Runtime": "python3.11",
        "Role": ROLE,
        "Handler": "app.handler",
        "Description": "says it again",
        "Timeout": 5,
        "MemorySize": 256,
        "Version": "$LATEST",
        "Environment": {"Variables": {"COLOUR": "blue"}},
        "TracingConfig": {"Mode": "Active"},
        "State": "Active",
        "LastUpdateStatus": "Successful",
        "PackageType": "Zip",
        "EphemeralStorage": {"Size": 1024},
        "SnapStart": {"ApplyOn": "None", "OptimizationStatus": "Off"},
        "LoggingConfig": {"LogFormat": "JSON", "LogGroup": f"/aws/lambda/{called}"},
    }
    shown = service.get_function(FunctionName=called)
    assert shown["Tags"] == {"team": "wool"}
    for answer in (made, shown["Configuration"]):
        assert {key: answer[key] for key in expected} == expected
    listed = {one["FunctionName"]: one for one in pages("list_functions", "Functions")}
    assert "State" not in listed[called] and listed[called]["RevisionId"] == made["RevisionId"]
    for waiter in ("function_active_v2", "function_updated_v2", "function_exists"):
        service.get_waiter(waiter).wait(FunctionName=called)
    service.delete_function(FunctionName=called)
    with refused("ResourceNotFoundException", 404, f"Function not found: {ARN}{called}"):
        service.get_function(FunctionName=called)


def pages(operation, member, **said):
    return [
        one for page in service.get_paginator(operation).paginate(**said) for one in page[member]
    ]


def test_a_new_function_takes_no_name_that_is_taken():
    called = create(service)
    with refused("ResourceConflictException", 409, f"Function already exist: {called}"):
        create(service, "def handler(event, context): return 'another'", called=called)
    assert call(service, called, 7) == 7
    # Of many at once, one is made.
    results, contested = [], name()

    def contend():
        try:
            create(client(), called=contested)
            results.append("made")
        except service.exceptions.ResourceConflictException:
            results.append("there")

    threads = [threading.Thread(target=contend) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(results) == ["made", "there", "there", "there"]


def test_a_function_finds_its_settings():
    source = (
        "import os\n"
        "def handler(event, context):\n"
        "    names = ('COLOUR', 'AWS_REGION', 'AWS_DEFAULT_REGION')\n"
        "    scratch = os.statvfs('/tmp')\n"
        "    return [*(os.environ[name] for name in names), context.memory_limit_in_mb,\n"
        "            os.getcwd(), scratch.f_blocks * scratch.f_frsize]\n"
    )
    variables = {"Environment": {"Variables": {"COLOUR": "blue"}}}
    called = create(service, source, MemorySize=192, EphemeralStorage={"Size": 600}, **variables)
    answer = call(service, called)
    assert answer == ["blue", "us-east-1", "us-east-1", "192", "/var/task", 600 << 20], answer


GREETED = """
import socket

def handler(port, context):
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as end:
            return end.recv(16).decode()
    except OSError as error:
        return type(error).__name__
"""


def test_a_variable_says_where_a_function_may_connect_to():
    with socket.create_server(("127.0.0.1", 0)) as greeting:
        port = greeting.getsockname()[1]

        def greet():
            with contextlib.suppress(OSError):
                while True:
                    with greeting.accept()[0] as caller:
                        caller.sendall(b"hello")

        threading.Thread(target=greet, daemon=True).start()
        reach = {"Variables": {"LAMBSWOOL_EGRESS": f"127.0.0.1:{port}, api.example.com:443"}}
        called = create(service, GREETED, called=name("reach"), Environment=reach)
        assert call(service, called, port) == "hello"
        change = service.update_function_configuration
        assert change(FunctionName=called, Timeout=9)["Environment"] == reach
        assert call(service, called, port) == "hello"
        change(FunctionName=called, Environment={"Variables": {}})
        assert call(service, called, port) == "PermissionError"
        greeting.shutdown(socket.SHUT_RDWR)
    # The operator lists the names that may.
    with refused("InvalidParameterValueException", 400, "`egress` in the worker's configuration"):
        create(service, GREETED, Environment=reach)


def test_a_variable_says_what_a_function_runs_in():
    where = "import os\ndef handler(event, context): return os.path.exists('/proc/self/ns')\n"
    machine = {"Variables": {"LAMBSWOOL_ISOLATION": "microvm", "LAMBSWOOL_RESET": "always"}}
    called = create(service, where)
    assert call(service, called) is True
    if os.access("/dev/kvm", os.W_OK):
        service.update_function_configuration(FunctionName=called, Environment=machine)
        assert call(service, called) is False
    for variables, words in [
        ({"LAMBSWOOL_ISOLATION": "vm"}, 'LAMBSWOOL_ISOLATION = "vm": write "container" or'),
        ({"LAMBSWOOL_RESET": "always"}, "LAMBSWOOL_RESET"),
        ({"LAMBSWOOL_MEMORY": "1GB"}, "LAMBSWOOL_MEMORY is no setting of Lambswool"),
        ({"LAMBSWOOL_EGRESS": "example.com"}, "names no port"),
        (machine["Variables"] | {"LAMBSWOOL_EGRESS": "a.example.com:443"}, "network"),
    ]:
        with refused("InvalidParameterValueException", 400, words):
            create(service, Environment={"Variables": variables})


@pytest.mark.parametrize("handler", ["pkg/web.run", "pkg.web.run"])
def test_a_handler_may_be_in_a_folder(handler):
    zipped = archive(pkg____init__="", pkg__web="def run(event, context):\n    return 'web'\n")
    called = create(service, Handler=handler, Code={"ZipFile": zipped})
    assert call(service, called) == "web"


def test_files_that_say_what_a_package_needs_are_code_alone():
    packed = archive(app=ECHO)
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(packed)) as before:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as zipped:
            zipped.writestr("app.py", before.read("app.py"))
            zipped.writestr("requirements.txt", "no-such-package-anywhere==9\n")
            zipped.writestr(
                "pyproject.toml", "[project]\nname = 'x'\ndependencies = ['nothing-like-it']\n"
            )
    called = create(service, Code={"ZipFile": out.getvalue()})
    assert call(service, called, [1]) == [1]


def test_code_that_cannot_run_is_made_and_fails_when_it_is_called():
    for source, kind in [
        ("def handler(event, context:\n", "Runtime.UserCodeSyntaxError"),
        ("import no_such_module\n", "Runtime.ImportModuleError"),
        ("x = 1\n", "Runtime.HandlerNotFound"),
    ]:
        called = create(service, source)
        reply = service.invoke(FunctionName=called)
        assert (reply["StatusCode"], reply["FunctionError"]) == (200, "Unhandled")
        failure = json.loads(reply["Payload"].read())
        assert failure["errorType"] == kind, failure
    called = create(service, "def handler(event, context): return {1, 2}\n")
    reply = service.invoke(FunctionName=called)
    assert json.loads(reply["Payload"].read())["errorType"] == "Runtime.MarshalError"


def test_a_call_knows_how_it_was_made():
    source = (
        "import os\n"
        "def handler(event, context):\n"
        "    return {\n"
        "        'arn': context.invoked_function_arn, 'version': context.function_version,\n"
        "        'name': context.function_name, 'group': context.log_group_name,\n"
        "        'custom': context.client_context.custom if context.client_context else None,\n"
        "        'variable': os.environ['AWS_LAMBDA_FUNCTION_VERSION'],\n"
        "    }\n"
    )
    called = create(service, source, Publish=True)
    service.create_alias(FunctionName=called, Name="live", FunctionVersion="1")
    context = base64.b64encode(b'{"custom": {"a": "b"}}').decode()
    latest = {
        "arn": ARN + called,
        "version": "$LATEST",
        "name": called,
        "group": f"/aws/lambda/{called}",
        "custom": {"a": "b"},
        "variable": "$LATEST",
    }
    assert call(service, called, ClientContext=context) == latest
    by_alias = call(service, called, Qualifier="live")
    assert (by_alias["arn"], by_alias["version"]) == (f"{ARN}{called}:live", "1")
    assert by_alias["custom"] is None


def test_a_result_that_is_too_long_is_told_as_the_service_tells_it():
    called = create(
        service, "def handler(event, context):\n    return 'x' * (7 << 20)\n", MemorySize=512
    )
    reply = service.invoke(FunctionName=called)
    failure = json.loads(reply["Payload"].read())
    assert failure["errorType"] == "Function.ResponseSizeTooLarge", failure
    assert "exceeded maximum allowed payload size (6291456 bytes)" in failure["errorMessage"]


def test_a_result_may_be_read_as_a_stream():
    source = "def handler(event, context):\n    return {'n': 1 / event}\n"
    called = create(service, source)

    def streamed(event):
        reply = service.invoke_with_response_stream(
            FunctionName=called, Payload=json.dumps(event), LogType="Tail"
        )
        events = list(reply["EventStream"])
        chunks = b"".join(one["PayloadChunk"]["Payload"] for one in events[:-1])
        return reply, chunks, events[-1]["InvokeComplete"]

    reply, chunks, end = streamed(4)
    assert (reply["StatusCode"], reply["ExecutedVersion"]) == (200, "$LATEST")
    assert json.loads(chunks) == {"n": 0.25} and "ErrorCode" not in end
    assert "REPORT RequestId" in base64.b64decode(end["LogResult"]).decode()
    _, chunks, end = streamed(0)
    assert chunks == b"" and end["ErrorCode"] == "Unhandled"
    assert json.loads(end["ErrorDetails"])["errorType"] == "ZeroDivisionError"


PARTS = """
import time

def handler(event, context):
    yield "first"
    time.sleep(1)
    yield f"{time.time()}"
    1 / event

async def later(event, context):
    for part in ("a", b"\\xff", "c"):
        yield part
"""


def test_what_a_function_yields_is_streamed_as_it_comes():
    called = create(service, PARTS, Timeout=20)
    reply = service.invoke_with_response_stream(FunctionName=called, Payload=b"0")
    events = iter(reply["EventStream"])
    assert next(events)["PayloadChunk"]["Payload"] == b"first"
    came = time.time()
    assert came < float(next(events)["PayloadChunk"]["Payload"]), "it came with the second one"
    end = next(events)["InvokeComplete"]
    assert end["ErrorCode"] == "Unhandled"
    assert json.loads(end["ErrorDetails"])["errorType"] == "ZeroDivisionError"
    # To a call that waits for its result it is none, as with AWS's runtime.
    reply = service.invoke(FunctionName=called, Payload=b"1")
    assert json.loads(reply["Payload"].read())["errorType"] == "Runtime.MarshalError"
    service.update_function_configuration(FunctionName=called, Handler="app.later")
    reply = service.invoke_with_response_stream(FunctionName=called)
    events = list(reply["EventStream"])
    parts = [one["PayloadChunk"]["Payload"] for one in events[:-1]]
    assert parts == [b"a", b"\xff", b"c"] and "ErrorCode" not in events[-1]["InvokeComplete"]
    # Who goes away ends the call.
    reply = service.invoke_with_response_stream(FunctionName=called)
    reply["EventStream"].close()
    reply = service.invoke_with_response_stream(FunctionName=called)
    assert len(list(reply["EventStream"])) == 4


def test_the_end_of_its_log_comes_with_a_call_that_asks_for_it():
    source = "def handler(event, context):\n    print('x' * event)\n    print('the end')\n"
    called = create(service, source)
    assert "LogResult" not in service.invoke(FunctionName=called, Payload=b"1")
    for length in (1, 9000):
        reply = service.invoke(FunctionName=called, LogType="Tail", Payload=str(length).encode())
        log = base64.b64decode(reply["LogResult"]).decode()
        identity = reply["ResponseMetadata"]["RequestId"]
        assert "the end" in log and f"END RequestId: {identity}" in log and len(log) <= 4096
        assert f"REPORT RequestId: {identity}\tDuration: " in log and "Memory Size: 128 MB" in log
    # A line is written beside the call, and need not be there when that is answered.
    until = time.monotonic() + 10
    while f"START RequestId: {identity} Version: $LATEST" not in logged(called):
        assert time.monotonic() < until, logged(called)
        time.sleep(0.05)


def test_a_failure_is_told_as_the_service_tells_it():
    source = (
        "import os, time\n"
        "class Odd(Exception): pass\n"
        "def handler(event, context):\n"
        "    if event == 'raise': raise Odd('why')\n"
        "    if event == 'sleep': time.sleep(9)\n"
        "    if event == 'exit': os._exit(3)\n"
        "    return context.aws_request_id\n"
    )
    called = create(service, source, Timeout=1)

    def invoke(event):
        reply = service.invoke(FunctionName=called, Payload=json.dumps(event))
        return reply, json.loads(reply["Payload"].read())

    reply, identity = invoke(None)
    assert (
        identity == reply["ResponseMetadata"]["RequestId"] and reply["ExecutedVersion"] == "$LATEST"
    )
    assert "FunctionError" not in reply
    reply, failure = invoke("raise")
    assert reply["FunctionError"] == "Unhandled"
    assert (failure["errorType"], failure["errorMessage"]) == ("Odd", "why")
    assert failure["requestId"] == reply["ResponseMetadata"]["RequestId"]
    assert any("line 4, in handler" in line for line in failure["stackTrace"])
    reply, failure = invoke("sleep")
    assert failure["errorType"] == "Sandbox.Timedout"
    assert failure["errorMessage"].endswith("Error: Task timed out after 1.00 seconds")
    reply, failure = invoke("exit")
    assert failure["errorType"] == "Runtime.ExitError" and "RequestId: " in failure["errorMessage"]
    assert invoke(None)[0]["StatusCode"] == 200


def test_an_event_that_nobody_waits_for_runs():
    source = "def handler(event, context):\n    print('ran', event['n'], context.aws_request_id)\n"
    called = create(service, source)
    reply = service.invoke(FunctionName=called, InvocationType="Event", Payload=b'{"n": 41}')
    assert reply["StatusCode"] == 202 and reply["Payload"].read() == b""
    line = f"ran 41 {reply['ResponseMetadata']['RequestId']}"
    until = time.monotonic() + 20
    while line not in logged(called):
        assert time.monotonic() < until, logged(called)
        time.sleep(0.05)
    with refused("RequestTooLargeException", 413):
        service.invoke(
            FunctionName=called, InvocationType="Event", Payload=b'"%s"' % (b"x" * (1 << 20))
        )
    with refused("InvalidRequestContentException", 400):
        service.invoke(FunctionName=called, InvocationType="Event", Payload=b"{")


def logged(called):
    text = ""
    for root, _, files in os.walk(os.environ["WOOL_LOG"]):
        for file in files:
            if called in os.path.join(root, file):
                with open(os.path.join(root, file), errors="replace") as opened:
                    text += opened.read()
    return text


def test_a_call_is_refused_before_it_is_made():
    called = create(service)
    assert service.invoke(FunctionName=called, InvocationType="DryRun")["StatusCode"] == 204
    for payload in (b"{", b"\xff", b"'a'"):
        with refused(
            "InvalidRequestContentException", 400, "Could not parse request body into json"
        ):
            service.invoke(FunctionName=called, Payload=payload)
    with refused("RequestTooLargeException", 413):
        service.invoke(FunctionName=called, Payload=b'"%s"' % (b"x" * (7 << 20)))
    with refused("ResourceNotFoundException", 404, "Function not found: "):
        service.invoke(FunctionName="nothing-here")
    with refused("ResourceNotFoundException", 404, "are not reachable in this region"):
        service.invoke(FunctionName=f"arn:aws:lambda:eu-west-1:000000000000:function:{called}")
    with refused("AccessDeniedException", 403):
        service.invoke(FunctionName=f"arn:aws:lambda:us-east-1:123456789012:function:{called}")
    for same in (
        ARN + called,
        f"000000000000:function:{called}",
        f"function:{called}",
        f"{called}:$LATEST",
    ):
        assert call(service, same, 1) == 1
    for context in ("no base64!", base64.b64encode(b"1").decode(), "e" * 4000):
        with refused("InvalidRequestContentException", 400, "Client context"):
            service.invoke(FunctionName=called, ClientContext=context)
    with refused("InvalidParameterValueException", 400, "leave the qualifier out"):
        service.update_function_configuration(FunctionName=f"{called}:1", Timeout=9)


def test_code_and_configuration_change_and_what_is_not_said_stays():
    called = create(service, Environment={"Variables": {"COLOUR": "blue"}}, Timeout=9)
    before = service.get_function_configuration(FunctionName=called)
    updated = service.update_function_configuration(
        FunctionName=called, Description="new", MemorySize=300
    )
    assert updated["RevisionId"] != before["RevisionId"]
    kept = ("Timeout", "Environment", "CodeSha256", "Handler", "Runtime", "Role")
    assert {key: updated[key] for key in kept} == {key: before[key] for key in kept}
    assert (updated["Description"], updated["MemorySize"]) == ("new", 300)
    with refused("PreconditionFailedException", 412):
        service.update_function_code(
            FunctionName=called, ZipFile=archive(app=ECHO), RevisionId=before["RevisionId"]
        )
    assert call(service, called, 1) == 1
    zipped = archive(app="def handler(event, context): return 'new code'")
    dry = service.update_function_code(FunctionName=called, ZipFile=zipped, DryRun=True)
    assert dry["CodeSize"] == len(zipped) and call(service, called, 1) == 1
    changed = service.update_function_code(
        FunctionName=called, ZipFile=zipped, RevisionId=updated["RevisionId"]
    )
    assert changed["MemorySize"] == 300 and call(service, called, 1) == "new code"
    # The same bytes count as a change.
    again = service.update_function_code(FunctionName=called, ZipFile=zipped)
    assert again["RevisionId"] != changed["RevisionId"]
    emptied = service.update_function_configuration(
        FunctionName=called, Environment={"Variables": {}}
    )
    assert "Environment" not in emptied


def test_what_cannot_be_is_refused_and_nothing_is_made():
    called = name()

    def made(**said):
        said = {"Code": {"ZipFile": archive(app=ECHO)}} | said
        create(service, called=called, **said)

    invalid = ("InvalidParameterValueException", 400)
    with refused(*invalid, "Could not unzip uploaded file"):
        made(Code={"ZipFile": b"no zip at all"})
    with refused(*invalid, "Could not unzip uploaded file"):
        made(Code={"ZipFile": b"PK\x03\x04" + b"x" * 100})
    with refused(*invalid, "source for function code"):
        made(Code={})
    with refused(*invalid, "nodejs22.x is not supported"):
        made(Runtime="nodejs22.x")
    for runtime in ("python3.011", "python3.+12", "python3.10", "python4.1"):
        with refused(*invalid, "is not supported"):
            made(Runtime=runtime)
    with refused(*invalid, "The runtime xxx"):
        made(Runtime="x" * 100_000)
    with refused(*invalid, "resource tag limit"):
        made(Tags={f"k{number}": "" for number in range(51)})
    with refused("RequestEntityTooLargeException", 413):
        made(Code={"ZipFile": b"PK" + b"x" * 54_000_000})
    with refused(*invalid, "ImageUri"):
        made(Code={"ImageUri": "x"})
    with refused(*invalid, "Reserved keys used in this request: AWS_REGION"):
        made(Environment={"Variables": {"AWS_REGION": "x"}})
    with refused(*invalid, "exceeded the 4KB limit"):
        made(Environment={"Variables": {"LONG": "x" * 5000}})
    with refused(*invalid, "VpcConfig is not supported"):
        made(VpcConfig={"SubnetIds": ["subnet-1"], "SecurityGroupIds": []})
    with refused(
        "ValidationException",
        400,
        "at 'timeout' failed to satisfy constraint: Member must have value less",
    ):
        made(Timeout=1_000_000)
    with refused("ValidationException", 400, "at 'role' failed to satisfy constraint"):
        made(Role="me")
    with refused("ResourceNotFoundException", 404):
        service.get_function(FunctionName=called)


def test_a_function_that_is_not_there_is_not_changed():
    for change in (
        lambda: service.update_function_code(
            FunctionName="nothing-here", ZipFile=archive(app=ECHO)
        ),
        lambda: service.update_function_configuration(FunctionName="nothing-here", Timeout=9),
        lambda: service.tag_resource(Resource=f"{ARN}nothing-here", Tags={"a": "b"}),
        lambda: service.publish_version(FunctionName="nothing-here"),
    ):
        with refused("ResourceNotFoundException", 404):
            change()


def test_a_function_that_wool_deployed_is_called_and_shown_and_its_code_is_not_changed():
    assert call(service, "native", {"a": 1}) == {"a": 1}
    shown = service.get_function(FunctionName="native")["Configuration"]
    assert (shown["Handler"], shown["Runtime"][:8]) == ("native.handler", "python3.")
    assert service.publish_version(FunctionName="native")["Version"] == "1"
    with refused("InvalidParameterValueException", 400, "was deployed with `wool deploy`"):
        service.update_function_code(FunctionName="native", ZipFile=archive(app=ECHO))


def test_an_operation_that_is_not_supported_says_so():
    with refused("InvalidParameterValueException", 400, "is not supported by Lambswool"):
        service.list_code_signing_configs()
    with refused("InvalidParameterValueException", 400, "is not supported by Lambswool"):
        service.list_capacity_providers()


def test_lists_come_in_pages():
    made = sorted(create(service, called=name("page")) for _ in range(5))
    listed = [
        one["FunctionName"]
        for one in pages("list_functions", "Functions", PaginationConfig={"PageSize": 2})
        if one["FunctionName"].startswith("page-")
    ]
    assert listed == made
    with refused("InvalidParameterValueException", 400, "marker"):
        service.list_functions(Marker="!!")


def test_tags_are_added_and_removed():
    called = create(service)
    service.tag_resource(Resource=ARN + called, Tags={"a": "1", "b": "2"})
    service.tag_resource(Resource=ARN + called, Tags={"b": "3"})
    service.untag_resource(Resource=ARN + called, TagKeys=["a", "c"])
    assert service.list_tags(Resource=ARN + called)["Tags"] == {"b": "3"}
    with refused("InvalidParameterValueException", 400):
        service.tag_resource(Resource=ARN + called, Tags={f"k{n}": "" for n in range(60)})
    service.delete_function(FunctionName=called)
    create(service, called=called)
    assert service.list_tags(Resource=ARN + called)["Tags"] == {}


def test_a_client_that_does_not_sign_sends_the_token_as_a_bearers():
    unsigned = boto3.client("lambda", config=Config(signature_version=UNSIGNED))
    with refused("UnrecognizedClientException", 403):
        unsigned.list_functions()
    bearer = f"Bearer {os.environ['AWS_SESSION_TOKEN']}"

    def add(request, **_):
        request.headers["Authorization"] = bearer

    unsigned.meta.events.register("before-send.lambda.*", add)
    assert "Functions" in unsigned.list_functions()


def test_the_account_has_limits():
    settings = service.get_account_settings()
    assert settings["AccountLimit"]["CodeSizeZipped"] == 52428800
    assert settings["AccountUsage"]["FunctionCount"] >= 1
