# /// script
# dependencies = ["boto3==1.44.5"]
# ///
import boto3


def work() -> None:
    client = boto3.client(
        "s3", region_name="eu-north-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    url = client.generate_presigned_url("get_object", {"Bucket": "flock", "Key": "wool"})
    assert "/wool?" in url and "flock" in url, url
