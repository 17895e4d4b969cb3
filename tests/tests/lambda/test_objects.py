"""Code in a store of objects: a real one, of which the worker was told."""

import os

import boto3
import pytest
from botocore.config import Config
from service import archive, call, client, create, name, refused

service = client()
INVALID = ("InvalidParameterValueException", 400)
FAILED = "Error occurred while GetObject. "


@pytest.fixture(scope="module")
def store():
    keys = {"aws_access_key_id": "wool", "aws_secret_access_key": "sheep-secret"}
    path_style = Config(s3={"addressing_style": "path"})
    endpoint = os.environ["OBJECTS_URL"]
    store = boto3.client("s3", endpoint_url=endpoint, config=path_style, **keys)
    store.create_bucket(Bucket="code")
    return store


def says(word):
    return f"def handler(event, context): return {word!r}"


def test_code_is_fetched_from_where_the_request_says(store):
    for key in ("one.zip", "deep/er/two +ü%2F.zip"):
        store.put_object(Bucket="code", Key=key, Body=archive(app=says(key)))
    called = create(service, Code={"S3Bucket": "code", "S3Key": "one.zip"})
    assert call(service, called) == "one.zip"
    place = {"S3Bucket": "code", "S3Key": "deep/er/two +ü%2F.zip"}
    updated = service.update_function_code(FunctionName=called, **place)
    assert call(service, called) == place["S3Key"]
    # As if the archive had been in the request.
    sent = service.update_function_code(FunctionName=called, ZipFile=archive(app=says("x")))
    assert sent["CodeSha256"] != updated["CodeSha256"]
    body = store.get_object(Bucket="code", Key=place["S3Key"])["Body"].read()
    sent = service.update_function_code(FunctionName=called, ZipFile=body)
    assert (sent["CodeSha256"], sent["CodeSize"]) == (updated["CodeSha256"], updated["CodeSize"])


def test_a_layer_is_fetched_from_there_too(store):
    store.put_object(Bucket="code", Key="l.zip", Body=archive(python__shared="SAYS = 'stored'\n"))
    place = {"S3Bucket": "code", "S3Key": "l.zip"}
    layer = service.publish_layer_version(LayerName=name("l"), Content=place)
    source = "import shared\ndef handler(event, context): return shared.SAYS"
    called = create(service, source, Layers=[layer["LayerVersionArn"]])
    assert call(service, called) == "stored"
    with refused(*INVALID, "NoSuchKey"):
        missing = place | {"S3Key": "missing"}
        service.publish_layer_version(LayerName=name("l"), Content=missing)
    with refused(*INVALID, "for the default tenant alone"):
        client(os.environ["OTHERS_TOKEN"]).publish_layer_version(LayerName="l", Content=place)


def test_what_is_not_there_or_no_archive_is_told_in_the_services_words(store):
    store.put_object(Bucket="code", Key="no.zip", Body=b"no archive")
    store.put_object(Bucket="code", Key="empty.zip", Body=b"")
    unzip = "Could not unzip uploaded file"
    for place, words in [
        (("code", "missing.zip"), FAILED + "S3 Error Code: NoSuchKey. S3 Error Message: "),
        (("missing", "one.zip"), FAILED + "S3 Error Code: NoSuchBucket. S3 Error Message: "),
        (("code", "no.zip"), unzip),
        (("code", "empty.zip"), unzip),
        (("code", "../../etc/passwd"), FAILED),
    ]:
        with refused(*INVALID, words):
            create(service, Code=dict(zip(("S3Bucket", "S3Key"), place, strict=True)))
    with refused(*INVALID, "Please provide both"):
        create(service, Code={"S3Bucket": "code"})
    with refused(*INVALID, "when providing a ZipFile"):
        create(service, Code={"S3Bucket": "code", "S3Key": "k", "ZipFile": archive(app="")})


def test_another_tenant_does_not_read_with_the_workers_credentials(store):
    store.put_object(Bucket="code", Key="secret.zip", Body=archive(app=says("secret")))
    other = client(os.environ["OTHERS_TOKEN"])
    with refused(*INVALID, "for the default tenant alone"):
        create(other, Code={"S3Bucket": "code", "S3Key": "secret.zip"})
