# /// script
# dependencies = ["boto3==1.44.8"]
# ///
# The handler of an event of S3 that Lambda's documentation has, with answers by botocore's stubber.
import io
import urllib.parse

import boto3
from botocore.exceptions import ClientError
from botocore.response import StreamingBody
from botocore.stub import Stubber

s3 = boto3.client("s3", "eu-north-1", aws_access_key_id="a", aws_secret_access_key="b")
table = boto3.client("dynamodb", "eu-north-1", aws_access_key_id="a", aws_secret_access_key="b")


def handler(event, context):
    bucket = event["Records"][0]["s3"]["bucket"]["name"]
    key = urllib.parse.unquote_plus(event["Records"][0]["s3"]["object"]["key"], encoding="utf-8")
    response = s3.get_object(Bucket=bucket, Key=key)
    text = response["Body"].read().decode()
    table.put_item(TableName="flock", Item={"key": {"S": key}, "n": {"N": str(len(text))}})
    return response["ContentType"]


def work() -> None:
    event = {"Records": [{"s3": {"bucket": {"name": "farm"}, "object": {"key": "a+w%C3%B6l"}}}]}
    with Stubber(s3) as stored, Stubber(table) as rows:
        body = StreamingBody(io.BytesIO("ö".encode()), 2)
        stored.add_response(
            "get_object",
            {"Body": body, "ContentType": "text/x"},
            {"Bucket": "farm", "Key": "a wöl"},
        )
        item = {"key": {"S": "a wöl"}, "n": {"N": "1"}}
        rows.add_response("put_item", {}, {"TableName": "flock", "Item": item})
        assert handler(event, None) == "text/x"
        stored.add_client_error("get_object", "NoSuchKey", http_status_code=404)
        try:
            handler(event, None)
        except ClientError as error:
            assert error.response["Error"]["Code"] == "NoSuchKey"
        else:
            raise AssertionError("there is no such key")
