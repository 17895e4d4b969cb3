"""Provisioned concurrency: instances that are there before they are called."""

import json
import os
import re
import threading
import time

import boto3
from botocore.config import Config
from service import ARN, archive, call, client, create, name, refused

service = client()
MADE = "import time\nMADE = time.time()\ndef handler(event, context):\n"
SINCE = MADE + "    return [MADE, context.function_version]\n"
MISSING = ("ProvisionedConcurrencyConfigNotFoundException", 404, "No Provisioned Concurrency")
INVALID = ("InvalidParameterValueException", 400)
KEYS = ("Requested", "Available", "Allocated")


def put(called, qualifier, number, client=service):
    said = {"FunctionName": called, "Qualifier": qualifier}
    return client.put_provisioned_concurrency_config(ProvisionedConcurrentExecutions=number, **said)


def get(called, qualifier):
    return service.get_provisioned_concurrency_config(FunctionName=called, Qualifier=qualifier)


def delete(called, qualifier):
    service.delete_provisioned_concurrency_config(FunctionName=called, Qualifier=qualifier)


def numbers(shown):
    return [shown[f"{key}ProvisionedConcurrentExecutions"] for key in KEYS]


def until(called, qualifier, status):
    end = time.monotonic() + 20
    while (shown := get(called, qualifier))["Status"] != status:
        assert time.monotonic() < end, shown
        time.sleep(0.1)
    return shown


def test_instances_are_there_before_a_version_is_called():
    called = create(service, SINCE, Publish=True)
    asked = put(called, "1", 2)
    assert asked["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert numbers(asked)[0] == 2
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*\+0000", asked["LastModified"])
    shown = until(called, "1", "READY")
    assert numbers(shown) == [2, 2, 2] and "StatusReason" not in shown
    ready = time.time()
    made, version = call(service, called, Qualifier="1")
    assert made < ready and version == "1"
    listed = service.list_provisioned_concurrency_configs(FunctionName=called)
    (one,) = listed["ProvisionedConcurrencyConfigs"]
    assert (one["FunctionArn"], one["Status"]) == (f"{ARN}{called}:1", "READY")
    # Another number replaces it.
    assert numbers(put(called, "1", 1))[0] == 1
    assert numbers(until(called, "1", "READY")) == [1, 1, 1]
    delete(called, "1")
    with refused(*MISSING):
        get(called, "1")
    delete(called, "1")
    assert not service.list_provisioned_concurrency_configs(FunctionName=called)[
        "ProvisionedConcurrencyConfigs"
    ]


def test_an_aliass_instances_follow_it():
    called = create(service, SINCE, Publish=True)
    service.create_alias(FunctionName=called, Name="live", FunctionVersion="1")
    put(called, "live", 1)
    until(called, "live", "READY")
    service.update_function_code(FunctionName=called, ZipFile=archive(app=SINCE + "\n"))
    service.publish_version(FunctionName=called)
    service.update_alias(FunctionName=called, Name="live", FunctionVersion="2")
    until(called, "live", "READY")
    ready = time.time()
    made, version = call(service, called, Qualifier="live")
    assert made < ready and version == "2"
    # What a version has, an alias of it cannot have as well, and the other way round.
    with refused(*INVALID, "pointed to by a Provisioned Concurrency alias"):
        put(called, "2", 1)
    service.create_alias(FunctionName=called, Name="next", FunctionVersion="1")
    put(called, "1", 1)
    with refused(*INVALID, "on an already Provisioned version"):
        put(called, "next", 1)
    service.delete_alias(FunctionName=called, Name="live")
    listed = service.list_provisioned_concurrency_configs(FunctionName=called)
    arns = [one["FunctionArn"] for one in listed["ProvisionedConcurrencyConfigs"]]
    assert arns == [f"{ARN}{called}:1"]


def test_what_does_not_load_says_why():
    called = create(service, "raise RuntimeError('no luck')\n", Publish=True)
    put(called, "1", 2)
    shown = until(called, "1", "FAILED")
    assert "no luck" in shown["StatusReason"] and numbers(shown) == [2, 0, 0]
    failed = service.invoke(FunctionName=called, Qualifier="1")
    assert "no luck" in json.load(failed["Payload"])["errorMessage"]
    delete(called, "1")


def test_no_more_are_promised_than_there_can_be():
    called = create(service, Publish=True)
    service.put_function_concurrency(FunctionName=called, ReservedConcurrentExecutions=2)
    with refused(*INVALID, "greater than the reservedConcurrentExecution"):
        put(called, "1", 3)
    put(called, "1", 2)
    with refused(*INVALID, "lower than function's total provisioned concurrency [2]"):
        service.put_function_concurrency(FunctionName=called, ReservedConcurrentExecutions=1)
    service.delete_function_concurrency(FunctionName=called)
    with refused(*INVALID, "decreases account's UnreservedConcurrentExecution"):
        put(called, "1", 1_000_000)
    assert numbers(get(called, "1"))[0] == 2
    # Of many who ask at once, no two get the same place.
    most = service.get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    others = [create(service, Publish=True) for _ in range(4)]
    granted = []

    def ask(other):
        try:
            put(other, "1", most // 4, client())
            granted.append(other)
        except service.exceptions.InvalidParameterValueException:
            pass

    threads = [threading.Thread(target=ask, args=[other]) for other in others]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(granted) <= 1, granted
    [service.delete_function(FunctionName=one) for one in [*others, called]]


def test_it_is_of_published_versions_that_are_there():
    called, missing = create(service, Publish=True), name()
    with refused(*INVALID, "cannot be applied to unpublished function versions"):
        put(called, "$LATEST", 1)
    for of, qualifier in ((called, "7"), (called, "nowhere"), (missing, "1")):
        with refused(
            "ResourceNotFoundException", 404, f"Function not found: {ARN}{of}:{qualifier}"
        ):
            put(of, qualifier, 1)
        with refused("ResourceNotFoundException", 404):
            get(of, qualifier)
    with refused(*MISSING):
        get(called, "1")
    unchecked = boto3.client("lambda", config=Config(parameter_validation=False))
    with refused("ValidationException", 400, "failed to satisfy constraint"):
        put(called, "1", 0, unchecked)
    other = client(os.environ["OTHERS_TOKEN"])
    with refused("ResourceNotFoundException", 404):
        put(called, "1", 1, other)
    with refused("AccessDeniedException", 403):
        put(called, "1", 1, client(os.environ["CALLERS_TOKEN"]))
