"""Packages that AWS's own runtimes bring, from the index."""

from service import archive, call, client, create

service = client()
OWN = "def own(event, context): return 'own'"


def test_boto3_is_there_though_the_archive_does_not_bring_it():
    source = (
        "import boto3, botocore.session\n"
        "def handler(event, context):\n"
        "    client = boto3.client('sqs')\n"
        "    return [boto3.__file__, client.meta.region_name]\n"
    )
    called = create(service, source, Timeout=30, MemorySize=512)
    assert call(service, called) == ["/opt/python/boto3/__init__.py", "us-east-1"]
    own = {"ZipFile": archive(app="import boto3\nhandler = boto3.own", boto3=OWN)}
    assert call(service, create(service, Code=own)) == "own"
