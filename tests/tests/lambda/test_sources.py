"""Event source mappings: functions that get the messages of queues."""

import os
import re
import time

import boto3
import pytest
from botocore.config import Config
from service import ARN, client, create, name, refused

service = client()
INVALID = ("InvalidParameterValueException", 400)
MISSING = ("ResourceNotFoundException", 404, "The resource you requested does not exist.")
QUEUE = "arn:aws:sqs:us-east-1:000000000000:"

# What it gets it writes into another queue's stead: its log.
SEEN = """
def handler(event, context):
    for record in event["Records"]:
        print("got", record["body"], len(event["Records"]), record["eventSourceARN"], flush=True)
    if any(record["body"] == "fails" for record in event["Records"]):
        raise RuntimeError("no")
    failed = [one["messageId"] for one in event["Records"] if one["body"] == "again"]
    return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}
"""


@pytest.fixture(scope="module")
def queues():
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return boto3.client("sqs", endpoint_url=os.environ["QUEUES_URL"], **keys)


@pytest.fixture
def queue(queues):
    called = name("q")
    url = queues.create_queue(QueueName=called, Attributes={"VisibilityTimeout": "2"})["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return url, arn["Attributes"]["QueueArn"]


def seen(called):
    """The bodies that a function has got, and how many came with each."""
    logs = []
    for folder, _, files in os.walk(os.environ["WOOL_LOG"]):
        logs += [
            os.path.join(folder, file) for file in files if called in os.path.join(folder, file)
        ]
    text = "".join(open(log, errors="replace").read() for log in logs)
    return re.findall(r"got (\S+) (\d+)", text)


def until(what):
    end = time.monotonic() + 30
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


def left(queues, url):
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    counts = queues.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(count) for count in counts.values())


def state(mapping):
    return service.get_event_source_mapping(UUID=mapping["UUID"])


def test_a_function_is_called_with_the_messages_of_a_queue(queues, queue):
    url, arn = queue
    called = create(service, SEEN)
    mapping = service.create_event_source_mapping(EventSourceArn=arn, FunctionName=called)
    assert mapping["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert mapping["FunctionArn"] == ARN + called and mapping["BatchSize"] == 10
    for body in ("one", "two"):
        queues.send_message(QueueUrl=url, MessageBody=body)
    until(lambda: {body for body, _ in seen(called)} == {"one", "two"})
    until(lambda: left(queues, url) == 0)
    until(lambda: state(mapping)["LastProcessingResult"] == "OK")
    # What fails stays in the queue, and comes again.
    queues.send_message(QueueUrl=url, MessageBody="fails")
    until(lambda: [body for body, _ in seen(called)].count("fails") >= 2)
    assert state(mapping)["LastProcessingResult"].startswith("PROBLEM")
    # One that is not wanted any more gets nothing.
    disabled = service.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    assert disabled["State"] == "Disabled"
    time.sleep(6)
    before = seen(called)
    queues.purge_queue(QueueUrl=url)
    queues.send_message(QueueUrl=url, MessageBody="three")
    time.sleep(3)
    assert seen(called) == before and left(queues, url) == 1
    service.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
    until(lambda: "three" in {body for body, _ in seen(called)})
    deleted = service.delete_event_source_mapping(UUID=mapping["UUID"])
    assert deleted["State"] == "Deleting"
    with refused(*MISSING):
        state(mapping)


def test_messages_come_together_within_a_window_and_only_those_that_failed_again(queues, queue):
    url, arn = queue
    bodies = [f"m{number}" for number in range(14)]
    for body in [*bodies, "again"]:
        queues.send_message(QueueUrl=url, MessageBody=body)
    called = create(service, SEEN)
    service.create_event_source_mapping(
        EventSourceArn=arn,
        FunctionName=called,
        BatchSize=15,
        MaximumBatchingWindowInSeconds=3,
        FunctionResponseTypes=["ReportBatchItemFailures"],
        ScalingConfig={"MaximumConcurrency": 2},
    )
    until(lambda: [body for body, _ in seen(called)].count("again") >= 2)
    got = seen(called)
    assert max(int(count) for _, count in got) > 10, "no batch is longer than one answer"
    assert sorted(body for body, _ in got if body != "again") == sorted(bodies)
    assert left(queues, url) == 1


def test_a_mapping_is_shown_listed_and_changed(queue):
    _, arn = queue
    called = create(service, Publish=True)
    service.create_alias(FunctionName=called, Name="live", FunctionVersion="1")
    made = service.create_event_source_mapping(
        EventSourceArn=arn, FunctionName=f"{called}:live", Enabled=False, BatchSize=3
    )
    assert re.fullmatch(r"[0-9a-f-]{36}", made["UUID"])
    assert made["FunctionArn"] == f"{ARN}{called}:live" and made["State"] == "Disabled"
    shown = state(made)
    same = ("UUID", "BatchSize", "EventSourceArn", "FunctionArn", "LastModified", "State")
    assert all(shown[key] == made[key] for key in same)
    for said in ({"FunctionName": called}, {"EventSourceArn": arn}, {}):
        listed = service.list_event_source_mappings(**said)["EventSourceMappings"]
        assert made["UUID"] in {one["UUID"] for one in listed}
    words = "already exists. Please update or delete the existing mapping with UUID"
    with refused("ResourceConflictException", 409, f"{words} {made['UUID']}"):
        service.create_event_source_mapping(EventSourceArn=arn, FunctionName=f"{called}:live")
    service.create_event_source_mapping(EventSourceArn=arn, FunctionName=called, Enabled=False)
    changed = service.update_event_source_mapping(
        UUID=made["UUID"], BatchSize=7, FunctionName=f"{called}:1"
    )
    assert (changed["BatchSize"], changed["FunctionArn"]) == (7, f"{ARN}{called}:1")
    service.delete_function(FunctionName=called)
    with refused(*MISSING):
        state(made)


def test_what_cannot_be_is_refused(queue):
    _, arn = queue
    called = create(service)
    create_mapping = service.create_event_source_mapping
    for said, words in [
        ({"EventSourceArn": "arn:aws:kinesis:us-east-1:000000000000:stream/x"}, "kinesis is not"),
        ({"EventSourceArn": arn.replace("us-east-1", "eu-west-1")}, "must be in the same one"),
        ({"BatchSize": 11}, "must be greater than 0"),
        ({"EventSourceArn": arn + ".fifo", "MaximumBatchingWindowInSeconds": 1}, "FIFO"),
        ({"FilterCriteria": {"Filters": [{"Pattern": "{}"}]}}, "FilterCriteria is not supported"),
        ({"ParallelizationFactor": 2}, "ParallelizationFactor is not supported"),
    ]:
        with refused(*INVALID, words):
            create_mapping(**({"EventSourceArn": arn, "FunctionName": called} | said))
    missing = name()
    with refused("ResourceNotFoundException", 404, f"Function not found: {ARN}{missing}"):
        create_mapping(EventSourceArn=arn, FunctionName=missing)
    unchecked = boto3.client("lambda", config=Config(parameter_validation=False))
    with refused("ValidationException", 400, "failed to satisfy constraint"):
        unchecked.create_event_source_mapping(EventSourceArn=arn, FunctionName=called, BatchSize=0)
    nobody = "00000000-0000-4000-8000-000000000000"
    for operation in ("get", "update", "delete"):
        with refused(*MISSING):
            getattr(service, f"{operation}_event_source_mapping")(UUID=nobody)


def test_another_tenant_reaches_no_queue_and_no_mapping(queue):
    _, arn = queue
    other = client(os.environ["OTHERS_TOKEN"])
    theirs = create(other)
    made = service.create_event_source_mapping(
        EventSourceArn=arn, FunctionName=create(service), Enabled=False
    )
    # Its tokens may deploy; what it may configure is its own.
    with refused(*INVALID, "for the default tenant alone"):
        other.create_event_source_mapping(EventSourceArn=arn, FunctionName=theirs)
    for operation in ("get", "delete"):
        with refused(*MISSING):
            getattr(other, f"{operation}_event_source_mapping")(UUID=made["UUID"])
    assert other.list_event_source_mappings()["EventSourceMappings"] == []
