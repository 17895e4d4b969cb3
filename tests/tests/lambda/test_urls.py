"""Function URLs: configured and shown."""

import os
import re
from urllib.parse import urlsplit

from service import ARN, create, name, refused
from service import client as client_of

service = client_of()
CORS = {
    "AllowCredentials": True,
    "AllowHeaders": ["x-one"],
    "AllowMethods": ["GET", "POST"],
    "AllowOrigins": ["https://example.org"],
    "ExposeHeaders": ["x-two"],
    "MaxAge": 300,
}
NONE = ("ResourceNotFoundException", 404, "The resource you requested does not exist.")
NO_FUNCTION = ("ResourceNotFoundException", 404, "Function does not exist")


def without_metadata(answer):
    return {key: value for key, value in answer.items() if key != "ResponseMetadata"}


def test_a_url_is_made_shown_changed_and_removed():
    called = create(service)
    with refused(*NONE):
        service.get_function_url_config(FunctionName=called)
    made = service.create_function_url_config(FunctionName=called, AuthType="NONE")
    assert made["ResponseMetadata"]["HTTPStatusCode"] == 201
    assert set(without_metadata(made)) == {"FunctionUrl", "FunctionArn", "AuthType", "CreationTime"}
    port = urlsplit(os.environ["AWS_ENDPOINT_URL_LAMBDA"]).port
    form = rf"http://[a-z0-9]{{32}}\.lambda-url\.us-east-1\.localhost:{port}/"
    assert re.fullmatch(form, made["FunctionUrl"]), made["FunctionUrl"]
    assert (made["FunctionArn"], made["AuthType"]) == (ARN + called, "NONE")
    shown = service.get_function_url_config(FunctionName=called)
    assert without_metadata(shown) == without_metadata(made) | {
        "InvokeMode": "BUFFERED",
        "LastModifiedTime": made["CreationTime"],
    }
    words = "FunctionUrlConfig exists for this Lambda function"
    with refused("ResourceConflictException", 409, words):
        service.create_function_url_config(FunctionName=called, AuthType="AWS_IAM")
    updated = service.update_function_url_config(
        FunctionName=called, AuthType="AWS_IAM", Cors=CORS, InvokeMode="RESPONSE_STREAM"
    )
    assert (updated["AuthType"], updated["Cors"]) == ("AWS_IAM", CORS)
    assert updated["InvokeMode"] == "RESPONSE_STREAM"
    same = ("FunctionUrl", "CreationTime", "FunctionArn")
    assert [updated[key] for key in same] == [made[key] for key in same]
    assert updated["LastModifiedTime"] > made["CreationTime"]
    # What is not said stays, and Cors is replaced as a whole.
    updated = service.update_function_url_config(FunctionName=called, Cors={"MaxAge": 5})
    assert (updated["AuthType"], updated["Cors"]) == ("AWS_IAM", {"MaxAge": 5})
    updated = service.update_function_url_config(FunctionName=called, AuthType="NONE", Cors={})
    assert "Cors" not in updated and updated["InvokeMode"] == "RESPONSE_STREAM"
    removed = service.delete_function_url_config(FunctionName=called)
    assert removed["ResponseMetadata"]["HTTPStatusCode"] == 204
    for refusal in (
        lambda: service.get_function_url_config(FunctionName=called),
        lambda: service.update_function_url_config(FunctionName=called, AuthType="NONE"),
        lambda: service.delete_function_url_config(FunctionName=called),
    ):
        with refused(*NONE):
            refusal()
    again = service.create_function_url_config(FunctionName=called, AuthType="NONE")
    assert again["FunctionUrl"] != made["FunctionUrl"]


def test_an_alias_has_a_url_of_its_own():
    called = create(service, Publish=True)
    made = {}
    for alias in ("live", "beta"):
        service.create_alias(FunctionName=called, Name=alias, FunctionVersion="1")
        made[alias] = service.create_function_url_config(
            FunctionName=called, Qualifier=alias, AuthType="NONE", InvokeMode="BUFFERED", Cors=CORS
        )
        assert made[alias]["FunctionArn"] == f"{ARN}{called}:{alias}"
        assert (made[alias]["InvokeMode"], made[alias]["Cors"]) == ("BUFFERED", CORS)
    whole = service.create_function_url_config(FunctionName=called, AuthType="NONE")
    listed = service.list_function_url_configs(FunctionName=called)
    assert "NextMarker" not in listed
    urls = {one["FunctionArn"]: one["FunctionUrl"] for one in listed["FunctionUrlConfigs"]}
    all_made = [whole, *made.values()]
    assert urls == {one["FunctionArn"]: one["FunctionUrl"] for one in all_made}
    assert len(set(urls.values())) == 3
    paginator = service.get_paginator("list_function_url_configs")
    pages = paginator.paginate(FunctionName=called, PaginationConfig={"PageSize": 1})
    assert [len(page["FunctionUrlConfigs"]) for page in pages] == [1, 1, 1]
    service.delete_function_url_config(FunctionName=f"{called}:beta")
    with refused(*NONE):
        service.get_function_url_config(FunctionName=called, Qualifier="beta")
    service.delete_alias(FunctionName=called, Name="live")
    with refused(*NONE):
        service.get_function_url_config(FunctionName=called, Qualifier="live")
    assert len(service.list_function_url_configs(FunctionName=called)["FunctionUrlConfigs"]) == 1


def test_what_no_url_may_be_of_is_refused():
    called = create(service, Publish=True)

    def make(function=called, **said):
        service.create_function_url_config(**{"FunctionName": function, "AuthType": "NONE"} | said)

    for qualifier in ("1", "$LATEST"):
        with refused("ValidationException", 400, "at 'qualifier' failed to satisfy constraint"):
            make(Qualifier=qualifier)
    with refused("ValidationException", 400, "at 'authType' failed to satisfy constraint"):
        make(AuthType="OPEN")
    with refused("ValidationException", 400, "at 'cors.maxAge' failed to satisfy constraint"):
        make(Cors={"MaxAge": 100_000})
    with refused(*NO_FUNCTION):
        make(Qualifier="none")
    with refused(*NO_FUNCTION):
        make(name())
    with refused(*NO_FUNCTION):
        service.list_function_url_configs(FunctionName=name())
    with refused(*NONE):
        service.get_function_url_config(FunctionName=name())


def test_a_function_that_was_deployed_otherwise_has_a_url_too():
    made = service.create_function_url_config(FunctionName="native", AuthType="NONE")
    assert made["FunctionArn"] == f"{ARN}native"
