"""Packages that AWS's own runtimes bring, from the index."""

import io
import zipfile

from service import archive, call, client, create, name

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


def layer(**files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        for path, text in files.items():
            zipped.writestr("python/" + path.replace("__", "/") + ".py", text)
    published = service.publish_layer_version(
        LayerName=name("l"), Content={"ZipFile": packed.getvalue()}
    )
    return published["LayerVersionArn"]


def test_boto3_is_there_beside_layers_and_a_layers_own_hides_it():
    source = (
        "import boto3, shared\n"
        "def handler(event, context):\n"
        "    client = boto3.client('sqs')\n"
        "    return [boto3.__file__, shared.__file__, client.meta.region_name]\n"
    )
    said = {"Timeout": 30, "MemorySize": 512}
    shared = layer(shared="")
    called = create(service, source, Layers=[shared], **said)
    files = ["/opt/python/boto3/__init__.py", "/opt/python/shared.py"]
    assert call(service, called) == [*files, "us-east-1"]
    # Of a layer that uses it, and code that does not.
    uses = layer(shared="import boto3\ndef region(): return boto3.client('sqs').meta.region_name\n")
    source = "import shared\ndef handler(event, context):\n    return shared.region()\n"
    assert call(service, create(service, source, Layers=[uses], **said)) == "us-east-1"
    source = "import boto3\ndef handler(event, context):\n    return boto3.own(event, context)\n"
    own = layer(boto3=OWN)
    assert call(service, create(service, source, Layers=[shared, own])) == "own"
