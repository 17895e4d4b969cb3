"""Reserved concurrency: how many calls of a function run at once."""

import json
import os
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import boto3
from botocore.config import Config
from service import ARN, archive, call, create, name, refused
from service import client as client_of

service = client_of()
FULL = ("TooManyRequestsException", 429, "Rate Exceeded.")
SLOW = (
    "import time\n"
    "def handler(event, context):\n"
    "    print('began', flush=True)\n"
    "    time.sleep(event)\n"
    "    return event\n"
)


def reserve(called, number):
    said = {"FunctionName": called, "ReservedConcurrentExecutions": number}
    answer = service.put_function_concurrency(**said)
    assert answer["ReservedConcurrentExecutions"] == number


def reserved(called):
    answer = service.get_function_concurrency(FunctionName=called)
    return answer.get("ReservedConcurrentExecutions")


def busy(called, **said):
    """A call that takes long enough; returns when it has begun."""
    before, until = begun(called), time.monotonic() + 20
    thread = threading.Thread(target=lambda: call(client_of(), called, 6, **said))
    thread.start()
    while begun(called) == before:
        assert time.monotonic() < until
        time.sleep(0.05)
    return thread


def begun(called):
    """How many calls of it have begun, by its log."""
    logs = [file for file in Path(os.environ["WOOL_LOG"]).rglob("*") if called in str(file)]
    return sum(file.read_text(errors="replace").count("began") for file in logs if file.is_file())


def test_a_reserved_number_is_shown_and_removed():
    called = create(service)
    assert reserved(called) is None
    assert "Concurrency" not in service.get_function(FunctionName=called)
    before = service.get_account_settings()["AccountLimit"]
    reserve(called, 3)
    assert reserved(called) == 3
    shown = service.get_function(FunctionName=called)["Concurrency"]
    assert shown == {"ReservedConcurrentExecutions": 3}
    after = service.get_account_settings()["AccountLimit"]
    assert after["ConcurrentExecutions"] == before["ConcurrentExecutions"]
    unreserved = "UnreservedConcurrentExecutions"
    assert after[unreserved] == before[unreserved] - 3
    # It belongs to the function, whatever its code is.
    service.update_function_code(FunctionName=called, ZipFile=archive(app=SLOW))
    assert reserved(called) == 3
    removed = service.delete_function_concurrency(FunctionName=called)
    assert removed["ResponseMetadata"]["HTTPStatusCode"] == 204
    assert reserved(called) is None
    assert service.get_account_settings()["AccountLimit"] == before
    service.delete_function_concurrency(FunctionName=called)


def test_zero_throttles_every_call():
    called = create(service, Publish=True)
    reserve(called, 0)
    for qualifier in ("$LATEST", "1"):
        with refused(*FULL):
            call(service, called, 1, Qualifier=qualifier)
    try:
        service.invoke(FunctionName=called)
    except service.exceptions.TooManyRequestsException as error:
        assert error.response["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
    assert service.invoke(FunctionName=called, InvocationType="Event")["StatusCode"] == 202
    reserve(called, 1)
    assert call(service, called, 1) == 1
    assert call(service, called, 1, Qualifier="1") == 1


def test_no_more_calls_run_than_are_reserved_whichever_versions_they_are_of():
    called = create(service, SLOW, Timeout=30, Publish=True)
    # What runs before there is a limit counts.
    first = busy(called)
    reserve(called, 2)
    second = busy(called, Qualifier="1")
    for qualifier in ("$LATEST", "1"):
        with refused(*FULL):
            call(service, called, 0, Qualifier=qualifier)
    first.join()
    second.join()
    assert call(service, called, 0) == 0
    # A call that fails gives its place back.
    reserve(called, 1)
    for _ in range(3):
        assert service.invoke(FunctionName=called, Payload=b'"no number"')["FunctionError"]
    assert call(service, called, 0) == 0
    # Another function has room all the while.
    other, thread = create(service, SLOW), busy(called)
    with refused(*FULL):
        call(service, called, 0)
    assert call(service, other, 0) == 0
    thread.join()


def test_the_workers_own_api_keeps_to_it_too():
    reserve("native", 0)
    refusal = run_natively("native")
    assert refusal.status == 429 and refusal.headers["Retry-After"] == "1"
    error = json.load(refusal)["error"]
    assert error["type"] == "busy" and "reserved concurrency" in error["message"]
    service.delete_function_concurrency(FunctionName="native")
    assert json.load(run_natively("native")) == {}


def run_natively(called):
    token = os.environ["AWS_SESSION_TOKEN"]
    url = f"{os.environ['AWS_ENDPOINT_URL_LAMBDA']}/run/{called}"
    request = urllib.request.Request(url, b"{}", {"Authorization": f"Bearer {token}"})
    try:
        return urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        return error


def test_it_is_of_whole_functions_that_are_there():
    called = create(service, Publish=True)
    words = "Aliases and versions do not support this operation"
    for named in (f"{called}:1", f"{ARN}{called}:$LATEST"):
        with refused("InvalidParameterValueException", 400, words):
            reserve(named, 1)
    missing = name()
    for refusal in (
        lambda: reserve(missing, 1),
        lambda: reserved(missing),
        lambda: service.delete_function_concurrency(FunctionName=missing),
    ):
        with refused("ResourceNotFoundException", 404, f"Function not found: {ARN}{missing}"):
            refusal()
    unchecked = boto3.client("lambda", config=Config(parameter_validation=False))
    for wrong in ({"ReservedConcurrentExecutions": -1}, {}):
        with refused("ValidationException", 400, "failed to satisfy constraint"):
            unchecked.put_function_concurrency(FunctionName=called, **wrong)
    assert reserved(called) is None
