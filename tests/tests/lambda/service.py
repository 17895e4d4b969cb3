"""What the tests of AWS Lambda's API share: a client, archives, errors that are expected."""

import contextlib
import io
import json
import os
import uuid
import zipfile

import boto3
import pytest
from botocore.exceptions import ClientError

ROLE = "arn:aws:iam::000000000000:role/tests"
ARN = "arn:aws:lambda:us-east-1:000000000000:function:"
ECHO = "def handler(event, context):\n    return event\n"


def client(token=None):
    """A client that is told what its environment says; with another token where one is given."""
    if token is None:
        return boto3.client("lambda")
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return boto3.client("lambda", aws_session_token=token, **keys)


def archive(**files):
    """A zip of Python files: `app="…"` is app.py, `src__app="…"` is src/app.py."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        for name, text in files.items():
            zipped.writestr(name.replace("__", "/") + ".py", text)
    return packed.getvalue()


def name(prefix="f"):
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def create(service, source=ECHO, called=None, **said):
    """Makes a function of one file, and returns its name."""
    called = called or name()
    said = {"Runtime": "python3.11", "Role": ROLE, "Handler": "app.handler"} | said
    code = said.pop("Code", {"ZipFile": archive(app=source)})
    service.create_function(FunctionName=called, Code=code, **said)
    return called


def call(service, called, event=None, **said):
    """Calls it; returns what it answered, or raises what failed in it."""
    reply = service.invoke(FunctionName=called, Payload=json.dumps(event), **said)
    return json.loads(reply["Payload"].read() or b"null")


@contextlib.contextmanager
def refused(code, status, words=""):
    """Expects an error of the service."""
    with pytest.raises(ClientError) as caught:
        yield
    error = caught.value.response
    assert error["Error"]["Code"] == code, error
    assert error["ResponseMetadata"]["HTTPStatusCode"] == status, error
    assert words in error["Error"]["Message"], error


def token(kind):
    return os.environ[kind]
