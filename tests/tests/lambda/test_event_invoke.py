"""How often events are tried, and for how long."""

import datetime
import os
import time

from service import ARN, create, name, refused
from service import client as client_of

service = client_of()
QUEUE = "arn:aws:sqs:us-east-1:123456789012:queue"
NOWHERE = {"OnSuccess": {}, "OnFailure": {}}


def settings(answer):
    dull = ("ResponseMetadata", "LastModified", "FunctionArn")
    return {key: value for key, value in answer.items() if key not in dull}


def test_settings_are_put_updated_shown_and_removed():
    called = create(service)
    arn = f"{ARN}{called}:$LATEST"
    words = f"The function {arn} doesn't have an EventInvokeConfig"
    unset = ("ResourceNotFoundException", 404, words)
    for refusal in (
        lambda: service.get_function_event_invoke_config(FunctionName=called),
        lambda: service.update_function_event_invoke_config(
            FunctionName=called, MaximumRetryAttempts=1
        ),
        lambda: service.delete_function_event_invoke_config(FunctionName=called),
    ):
        with refused(*unset):
            refusal()
    put = service.put_function_event_invoke_config(FunctionName=called, MaximumRetryAttempts=0)
    assert put["FunctionArn"] == arn
    assert settings(put) == {"MaximumRetryAttempts": 0, "DestinationConfig": NOWHERE}
    age = datetime.datetime.now(datetime.UTC) - put["LastModified"]
    assert abs(age) < datetime.timedelta(minutes=1)
    both = {"OnSuccess": {"Destination": QUEUE}, "OnFailure": {"Destination": QUEUE}}
    updated = service.update_function_event_invoke_config(
        FunctionName=called, MaximumEventAgeInSeconds=60, DestinationConfig=both
    )
    retries = {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
    expected = retries | {"DestinationConfig": both}
    assert settings(updated) == expected
    shown = service.get_function_event_invoke_config(FunctionName=called, Qualifier="$LATEST")
    assert settings(shown) == expected and shown["LastModified"] == updated["LastModified"]
    replaced = service.put_function_event_invoke_config(
        FunctionName=called, MaximumEventAgeInSeconds=99
    )
    assert settings(replaced) == {"MaximumEventAgeInSeconds": 99, "DestinationConfig": NOWHERE}
    removed = service.delete_function_event_invoke_config(FunctionName=called)
    assert removed["ResponseMetadata"]["HTTPStatusCode"] == 204
    with refused(*unset):
        service.get_function_event_invoke_config(FunctionName=called)


def test_a_version_and_an_alias_have_settings_of_their_own():
    called = create(service, Publish=True)
    service.create_alias(FunctionName=called, Name="live", FunctionVersion="1")
    for attempts, qualifier in enumerate(("$LATEST", "1", "live")):
        put = service.put_function_event_invoke_config(
            FunctionName=called, Qualifier=qualifier, MaximumRetryAttempts=attempts
        )
        assert put["FunctionArn"] == f"{ARN}{called}:{qualifier}"
    listed = service.list_function_event_invoke_configs(FunctionName=called)
    assert "NextMarker" not in listed
    shown = {one["FunctionArn"]: one for one in listed["FunctionEventInvokeConfigs"]}
    attempts = {arn.rsplit(":")[-1]: one["MaximumRetryAttempts"] for arn, one in shown.items()}
    assert attempts == {"$LATEST": 0, "1": 1, "live": 2}
    paginator = service.get_paginator("list_function_event_invoke_configs")
    pages = paginator.paginate(FunctionName=called, PaginationConfig={"PageSize": 2})
    assert [len(page["FunctionEventInvokeConfigs"]) for page in pages] == [2, 1]
    service.delete_alias(FunctionName=called, Name="live")
    left = service.list_function_event_invoke_configs(FunctionName=called)
    assert len(left["FunctionEventInvokeConfigs"]) == 2


def test_what_cannot_be_set_is_refused():
    called = create(service)

    def put(function=called, **said):
        service.put_function_event_invoke_config(FunctionName=function, **said)

    with refused("InvalidParameterValueException", 400, "You must specify at least one of"):
        put()
    for itself in (ARN + called, f"{ARN}{called}:live"):
        with refused("InvalidParameterValueException", 400, "as a destination for itself"):
            put(DestinationConfig={"OnFailure": {"Destination": itself}})
    for wrong in ({"MaximumRetryAttempts": 3}, {"MaximumEventAgeInSeconds": 21601}):
        with refused("ValidationException", 400, "failed to satisfy constraint"):
            put(**wrong)
    missing = ("ResourceNotFoundException", 404, "The function doesn't exist.")
    with refused(*missing):
        put(name(), MaximumRetryAttempts=1)
    with refused(*missing):
        put(Qualifier="none", MaximumRetryAttempts=1)
    with refused(*missing):
        service.list_function_event_invoke_configs(FunctionName=name())


def test_an_event_of_a_function_that_fails_is_given_up_when_it_was_tried_often_enough():
    failing = "def handler(event, context):\n    raise ValueError('always')\n"
    called, patient = create(service, failing), create(service, failing)
    service.put_function_event_invoke_config(FunctionName=called, MaximumRetryAttempts=0)
    for function in (patient, called):
        service.invoke(FunctionName=function, InvocationType="Event", Payload=b"{}")
    until = time.monotonic() + 30
    while not given_up(called):
        assert time.monotonic() < until
        time.sleep(0.1)
    # The other one is tried again in a minute.
    assert not given_up(patient)


def test_an_event_without_room_is_given_up_when_it_is_too_old():
    # No room for 31 seconds: the next try would begin after the event's last second.
    called = create(service)
    service.put_function_event_invoke_config(FunctionName=called, MaximumEventAgeInSeconds=60)
    service.put_function_concurrency(FunctionName=called, ReservedConcurrentExecutions=0)
    service.invoke(FunctionName=called, InvocationType="Event", Payload=b"{}")
    began = time.monotonic()
    while not given_up(called):
        assert time.monotonic() < began + 90
        time.sleep(0.5)
    assert time.monotonic() > began + 25


def given_up(called):
    with open(os.environ["WORKER_LOG"], errors="replace") as log:
        lines = [line for line in log if "an event was given up" in line]
    return any(called in line for line in lines)


def test_a_function_that_was_deployed_otherwise_has_settings_too():
    put = service.put_function_event_invoke_config(FunctionName="native", MaximumRetryAttempts=1)
    assert put["FunctionArn"] == f"{ARN}native:$LATEST"
