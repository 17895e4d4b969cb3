"""Layers: published, shown, listed, removed, and run with."""

import base64
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

from service import ARN, call, client, create, name, refused, token

service = client()

LAYER = "arn:aws:lambda:us-east-1:000000000000:layer:"
MOST = 262144000

IMPORTS = """
import sys
def handler(event, context):
    import shared
    return [shared.SAYS, shared.__file__, shared.__cached__ is not None]
"""

READS = """
import os
def handler(event, context):
    found = {}
    for path in event:
        try:
            found[path] = open(path).read()
        except OSError as error:
            found[path] = type(error).__name__
    return found
"""


def packed(files, modes=None):
    """A zip of these files; a mode where one is not 0644."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (stat.S_IFREG | (modes or {}).get(path, 0o644)) << 16
            zipped.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def publish(files, layer=None, modes=None, **said):
    layer = layer or name("l")
    return service.publish_layer_version(
        LayerName=layer, Content={"ZipFile": packed(files, modes)}, **said
    )


def arn(files, **said):
    return publish(files, **said)["LayerVersionArn"]


def says(text):
    return {"python/shared.py": f"SAYS = {text!r}\n"}


def bare(answer):
    return {key: value for key, value in answer.items() if key != "ResponseMetadata"}


def test_a_published_version_is_shown_as_it_was_published():
    layer, archive = name("l"), packed(says("one"))
    published = service.publish_layer_version(
        LayerName=layer,
        Description="what is shared",
        LicenseInfo="MIT",
        Content={"ZipFile": archive},
        CompatibleRuntimes=["python3.11", "python3.12"],
        CompatibleArchitectures=["x86_64"],
    )
    assert published["ResponseMetadata"]["HTTPStatusCode"] == 201
    content = published["Content"]
    assert content["CodeSize"] == len(archive)
    assert content["CodeSha256"] == base64.b64encode(hashlib.sha256(archive).digest()).decode()
    assert published["LayerArn"] == LAYER + layer
    assert published["LayerVersionArn"] == f"{LAYER}{layer}:1"
    assert (published["Version"], published["Description"]) == (1, "what is shared")
    assert published["LicenseInfo"] == "MIT"
    assert published["CompatibleRuntimes"] == ["python3.11", "python3.12"]
    assert published["CompatibleArchitectures"] == ["x86_64"]
    assert published["CreatedDate"].endswith("+0000")
    for named in (layer, LAYER + layer):
        shown = service.get_layer_version(LayerName=named, VersionNumber=1)
        assert bare(shown) == bare(published)
    by_arn = service.get_layer_version_by_arn(Arn=f"{LAYER}{layer}:1")
    assert bare(by_arn) == bare(published)
    plain = publish(says("one"), layer)
    assert (plain["Version"], plain["Description"]) == (2, "")
    assert not {"LicenseInfo", "CompatibleRuntimes", "CompatibleArchitectures"} & set(plain)


def test_layers_are_listed_by_name_with_their_newest_version_that_fits():
    prefix = name("list")
    for layer, runtimes in [("b", ["python3.11"]), ("a", ["python3.12"]), ("b", ["python3.12"])]:
        publish(says("x"), f"{prefix}-{layer}", CompatibleRuntimes=runtimes)
    publish(says("x"), f"{prefix}-a", CompatibleArchitectures=["arm64"])

    def listed(**said):
        pages = service.get_paginator("list_layers").paginate(
            PaginationConfig={"PageSize": 1}, **said
        )
        layers = [one for page in pages for one in page["Layers"]]
        ours = [one for one in layers if one["LayerName"].startswith(prefix)]
        assert all(one["LayerArn"] == LAYER + one["LayerName"] for one in ours)
        return [
            (one["LayerName"][len(prefix) + 1 :], one["LatestMatchingVersion"]["Version"])
            for one in ours
        ]

    assert listed() == [("a", 2), ("b", 2)]
    assert listed(CompatibleRuntime="python3.11") == [("b", 1)]
    assert listed(CompatibleRuntime="python3.12") == [("a", 1), ("b", 2)]
    assert listed(CompatibleArchitecture="arm64") == [("a", 2)]
    assert listed(CompatibleArchitecture="arm64", CompatibleRuntime="python3.12") == []
    versions = service.list_layer_versions(LayerName=f"{prefix}-b")
    assert [one["Version"] for one in versions["LayerVersions"]] == [2, 1]
    assert "Content" not in versions["LayerVersions"][0]
    first = service.list_layer_versions(LayerName=f"{prefix}-b", MaxItems=1)
    rest = service.list_layer_versions(LayerName=f"{prefix}-b", Marker=first["NextMarker"])
    assert [one["Version"] for one in rest["LayerVersions"]] == [1]
    assert "NextMarker" not in rest
    fitting = service.list_layer_versions(LayerName=f"{prefix}-b", CompatibleRuntime="python3.11")
    assert [one["Version"] for one in fitting["LayerVersions"]] == [1]
    assert service.list_layer_versions(LayerName="nothing-here")["LayerVersions"] == []


def test_a_removed_version_is_gone_and_its_number_is_not_given_again():
    layer = name("l")
    for number in (1, 2):
        assert publish(says("x"), layer)["Version"] == number
    for _ in range(2):
        removed = service.delete_layer_version(LayerName=layer, VersionNumber=2)
        assert removed["ResponseMetadata"]["HTTPStatusCode"] == 204
    gone = "The resource you requested does not exist."
    with refused("ResourceNotFoundException", 404, gone):
        service.get_layer_version(LayerName=layer, VersionNumber=2)
    with refused("ResourceNotFoundException", 404, gone):
        service.get_layer_version_by_arn(Arn=f"{LAYER}{layer}:2")
    assert publish(says("x"), layer)["Version"] == 3
    versions = service.list_layer_versions(LayerName=layer)["LayerVersions"]
    assert [one["Version"] for one in versions] == [3, 1]


def test_what_is_no_layer_is_refused():
    layer = name("l")
    gone = "The resource you requested does not exist."
    with refused("ResourceNotFoundException", 404, gone):
        service.get_layer_version(LayerName=layer, VersionNumber=1)
    with refused("ResourceNotFoundException", 404, gone):
        service.get_layer_version(LayerName=layer, VersionNumber=1 << 40)
    for operation in (service.get_layer_version, service.delete_layer_version):
        with refused("InvalidParameterValueException", 400, "Layer Version Cannot be less than 1"):
            operation(LayerName=layer, VersionNumber=0)
        with refused("ValidationException", 400, "layerName"):
            operation(LayerName="no.layer", VersionNumber=1)
        with refused("InvalidParameterValueException", 400, "in region us-east-1"):
            operation(
                LayerName=f"arn:aws:lambda:eu-west-1:000000000000:layer:{layer}", VersionNumber=1
            )
        with refused("AccessDeniedException", 403, "lambda:GetLayerVersion"):
            operation(
                LayerName=f"arn:aws:lambda:us-east-1:123456789012:layer:{layer}", VersionNumber=1
            )
    with refused("ValidationException", 400, "arn"):
        service.get_layer_version_by_arn(Arn=LAYER + layer)
    with refused("ValidationException", 400, f"{layer}:0"):
        service.get_layer_version_by_arn(Arn=f"{LAYER}{layer}:0")

    def wrong(content, **said):
        return service.publish_layer_version(LayerName=layer, Content=content, **said)

    with refused("InvalidParameterValueException", 400, "no store of objects"):
        wrong({"S3Bucket": "bucket", "S3Key": "key"})
    with refused("InvalidParameterValueException", 400, "provide a source"):
        wrong({})
    for archive in (b"", b"no archive", b"PK\x03\x04 and no more", packed({})):
        with refused("InvalidParameterValueException", 400):
            wrong({"ZipFile": archive})
    for path in ("../evil.py", "/etc/evil.py", "python/../../evil.py"):
        with refused("InvalidParameterValueException", 400, "evil.py"):
            wrong({"ZipFile": packed({path: "x"})})
    for path in ("lambswool/lambswool_guest/handler.py", "./lambswool//x", "lambswool"):
        with refused("InvalidParameterValueException", 400, "Lambswool's own files"):
            wrong({"ZipFile": packed({path: "raise SystemExit\n"})})
    large = {f"data/{n}": bytes(n) + b"\0" * (MOST // 18) for n in range(18)}
    with refused("InvalidParameterValueException", 400, f"smaller than {MOST} bytes"):
        wrong({"ZipFile": packed(large)})
    with refused("ValidationException", 400, "compatibleRuntimes"):
        wrong({"ZipFile": packed(says("x"))}, CompatibleRuntimes=["python3.11"] * 16)
    assert service.list_layer_versions(LayerName=layer)["LayerVersions"] == []


def test_a_layer_with_links_is_refused():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        entry = zipfile.ZipInfo("python/evil")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        zipped.writestr(entry, "/etc")
    with refused("InvalidParameterValueException", 400, "is a link"):
        service.publish_layer_version(LayerName=name("l"), Content={"ZipFile": archive.getvalue()})


def test_a_function_imports_and_runs_what_its_layer_has():
    layer = publish(
        {
            **says("from a layer"),
            "python/lib/python3.11/site-packages/deep.py": "SAYS = 'deep'\n",
            "bin/tool": "#!/usr/bin/python3\nimport sys\nprint('tool', sys.argv[1])\n",
            "data/words.txt": "words",
            "config.json": "{}",
        },
        modes={"bin/tool": 0o755},
    )
    source = """
import os, subprocess, sys
def handler(event, context):
    import deep, shared
    child = [sys.executable, "-c", "import shared, deep; print(shared.SAYS, deep.SAYS)"]
    return {
        "says": [shared.SAYS, deep.SAYS, shared.__file__, deep.__file__],
        "path": [one for one in sys.path if one.startswith(("/var/task", "/opt"))],
        "tool": subprocess.run(["tool", "1"], capture_output=True, text=True).stdout,
        "child": subprocess.run(child, capture_output=True, text=True).stdout,
        "words": open("/opt/data/words.txt").read(),
        "opt": sorted(os.listdir("/opt")),
        "libraries": "/opt/lib" in os.environ["LD_LIBRARY_PATH"].split(":"),
    }
"""
    called = create(service, source, Layers=[layer["LayerVersionArn"]])
    expected = {
        "says": [
            "from a layer",
            "deep",
            "/opt/python/shared.py",
            "/opt/python/lib/python3.11/site-packages/deep.py",
        ],
        "path": [
            "/var/task",
            "/opt/python/lib/python3.11/site-packages",
            "/opt/python",
        ],
        "tool": "tool 1\n",
        "child": "from a layer deep\n",
        "words": "words",
        "opt": ["bin", "config.json", "data", "lambswool", "python"],
        "libraries": True,
    }
    for _ in range(2):
        assert call(service, called) == expected
    shown = [{"Arn": layer["LayerVersionArn"], "CodeSize": layer["Content"]["CodeSize"]}]
    assert service.get_function_configuration(FunctionName=called)["Layers"] == shown
    assert service.get_function(FunctionName=called)["Configuration"]["Layers"] == shown
    listed = service.get_paginator("list_functions").paginate()
    (one,) = [one for page in listed for one in page["Functions"] if one["FunctionName"] == called]
    assert one["Layers"] == shown


def test_a_functions_own_files_hide_those_of_its_layers():
    called = create(
        service,
        Code={"ZipFile": packed({"app.py": IMPORTS, "shared.py": "SAYS = 'own'\n"})},
        Layers=[arn(says("layer"))],
    )
    assert call(service, called)[:2] == ["own", "/var/task/shared.py"]


def test_the_later_of_two_layers_hides_the_earlier_file_by_file():
    first = arn({**says("first"), "data/a": "first", "data/b": "first", "x": "a file"})
    second = arn({**says("second"), "data/b": "second", "x/y": "in a folder"})
    paths = ["/opt/data/a", "/opt/data/b", "/opt/x", "/opt/x/y"]
    called = create(service, READS, Layers=[first, second])
    assert call(service, called, paths) == {
        "/opt/data/a": "first",
        "/opt/data/b": "second",
        "/opt/x": "IsADirectoryError",
        "/opt/x/y": "in a folder",
    }
    changed = service.update_function_configuration(FunctionName=called, Layers=[second, first])
    assert [one["Arn"] for one in changed["Layers"]] == [second, first]
    assert call(service, called, paths) == {
        "/opt/data/a": "first",
        "/opt/data/b": "first",
        "/opt/x": "a file",
        "/opt/x/y": "NotADirectoryError",
    }
    service.update_function_code(FunctionName=called, ZipFile=packed({"app.py": IMPORTS}))
    assert call(service, called) == ["first", "/opt/python/shared.py", True]
    service.update_function_configuration(FunctionName=called, Layers=[first, second])
    assert call(service, called)[0] == "second"


def test_layers_are_kept_changed_and_taken_away():
    one, other = arn(says("one")), arn(says("other"))
    called = create(service, IMPORTS, Layers=[one])
    assert call(service, called)[0] == "one"
    first = service.publish_version(FunctionName=called)
    assert [layer["Arn"] for layer in first["Layers"]] == [one]
    kept = service.update_function_configuration(FunctionName=called, Timeout=9)
    assert [layer["Arn"] for layer in kept["Layers"]] == [one]
    assert call(service, called)[0] == "one"
    service.update_function_configuration(FunctionName=called, Layers=[other])
    assert call(service, called)[0] == "other"
    assert call(service, called, Qualifier="1")[0] == "one"
    without = service.update_function_configuration(FunctionName=called, Layers=[])
    assert "Layers" not in without
    reply = service.invoke(FunctionName=called)
    assert "No module named 'shared'" in json.loads(reply["Payload"].read())["errorMessage"]
    assert call(service, called, Qualifier="1")[0] == "one"


def test_a_function_keeps_a_layer_that_was_removed():
    layer = publish(says("still here"))
    version, layer_name = layer["Version"], layer["LayerArn"].rpartition(":")[2]
    called = create(service, IMPORTS, Layers=[layer["LayerVersionArn"]])
    service.delete_layer_version(LayerName=layer_name, VersionNumber=version)
    assert call(service, called)[0] == "still here"
    # Another state of the function is made of the kept files.
    kept = service.update_function_configuration(FunctionName=called, MemorySize=256)
    assert [one["Arn"] for one in kept["Layers"]] == [layer["LayerVersionArn"]]
    assert call(service, called)[0] == "still here"
    missing = f"Layer version {layer['LayerVersionArn']} does not exist."
    with refused("InvalidParameterValueException", 400, missing):
        service.update_function_configuration(
            FunctionName=called, Layers=[layer["LayerVersionArn"]]
        )
    with refused("InvalidParameterValueException", 400, missing):
        create(service, IMPORTS, Layers=[layer["LayerVersionArn"]])
    assert call(service, called)[0] == "still here"


def test_lost_layers_are_made_again_and_what_is_used_stays():
    layer = publish(says("made again"))
    called = create(service, IMPORTS, Layers=[layer["LayerVersionArn"]])
    assert call(service, called)[0] == "made again"
    service.delete_layer_version(
        LayerName=layer["LayerArn"].rpartition(":")[2], VersionNumber=layer["Version"]
    )
    unused = publish(says("used by none"))["LayerVersionArn"]
    url, key = os.environ["AWS_ENDPOINT_URL_LAMBDA"], os.environ["AWS_SESSION_TOKEN"]
    prune = urllib.request.Request(
        f"{url}/v1/packages/prune", method="POST", headers={"Authorization": f"Bearer {key}"}
    )
    with urllib.request.urlopen(prune) as pruned:
        assert pruned.status == 200
    made = Path(os.environ["WOOL_LOG"]).parent / "layers" / "opt"
    assert call(service, called)[0] == "made again"
    for directory in made.iterdir():
        if directory.is_dir():
            shutil.rmtree(directory)
    service.update_function_configuration(FunctionName=called, Timeout=4)
    assert call(service, called)[0] == "made again"
    service.update_function_configuration(FunctionName=called, Layers=[unused])
    assert call(service, called)[0] == "used by none"


def test_layers_that_no_function_can_have_are_refused():
    layer = name("l")
    versions = [arn(says("x"), layer=layer), arn(says("y"), layer=layer)]
    many = [arn(says(str(number))) for number in range(6)]
    called = create(service, IMPORTS, Layers=many[:5])
    assert call(service, called)[0] == "4"

    def wrong(code, status, words, layers):
        for change in (
            lambda: create(service, IMPORTS, Layers=layers),
            lambda: service.update_function_configuration(FunctionName=called, Layers=layers),
        ):
            with refused(code, status, words):
                change()

    invalid = "InvalidParameterValueException"
    wrong(invalid, 400, "Cannot reference more than 5 layers.", many)
    words = (
        "Two different versions of the same layer are not allowed to be referenced in the same "
        f"function. {versions[0]} and {versions[1]} are versions of the same layer."
    )
    wrong(invalid, 400, words, versions)
    wrong(invalid, 400, "versions of the same layer", [versions[0], versions[0]])
    for missing in (f"{LAYER}nothing-here:1", f"{LAYER}{layer}:3", f"{LAYER}{layer}:99999999999"):
        wrong(invalid, 400, f"Layer version {missing} does not exist.", [missing])
    wrong(invalid, 400, "in region us-east-1", [many[0].replace("us-east-1", "eu-west-1")])
    foreign = many[0].replace("000000000000", "123456789012")
    wrong("AccessDeniedException", 403, "lambda:GetLayerVersion", [foreign])
    wrong("ValidationException", 400, "layers", [LAYER + layer])
    wrong("ValidationException", 400, "layers", ["not an arn"])
    assert call(service, called)[0] == "4"
    shown = service.get_function_configuration(FunctionName=called)["Layers"]
    assert [one["Arn"] for one in shown] == many[:5]


def test_a_function_and_its_layers_are_no_larger_than_the_service_allows():
    half = MOST // 2

    # Of pieces: one that shrinks too much is refused for what it may unpack to.
    def layer(size):
        piece = 8 << 20
        pieces = range(0, size, piece)
        return arn({f"data/{at}": b"\0" * min(piece, size - at) for at in pieces})

    halves = [layer(half), layer(half)]
    with refused("InvalidParameterValueException", 400, "combined with layers exceeds"):
        create(service, Layers=halves)
    called = create(service, Layers=halves[:1])
    words = f"allowed size of {MOST} bytes. The actual size is {MOST + 46} bytes."
    with refused("InvalidParameterValueException", 400, words):
        service.update_function_configuration(FunctionName=called, Layers=halves)
    assert call(service, called, 1) == 1


def test_no_layer_takes_the_place_of_what_runs_a_function():
    # Names that Lambswool's own files, Python's and the base's have.
    evil = "import os\nos.write(2, b'EVIL RAN')\nraise SystemExit(7)\n"
    layer = arn(
        {
            "python/lambswool_guest/__init__.py": evil,
            "python/lambswool_guest/handler.py": evil,
            "python/sitecustomize.py": evil,
            "python/usercustomize.py": evil,
            "python/evil.pth": "import os; os.write(2, b'EVIL RAN')\n",
            "lib/python3.11/os.py": evil,
            "Lambswool/x": "",
        }
    )
    source = """
import os
def handler(event, context):
    tried = []
    for path in ("/opt/x", "/opt/lambswool/x", "/opt/python/x"):
        try:
            open(path, "w")
            tried.append("written")
        except OSError as error:
            tried.append(error.errno)
    if event:
        raise KeyError(event)
    return [os.listdir("/opt/lambswool"), tried, sorted(os.listdir("/opt"))]
"""
    called = create(service, source, Layers=[layer])
    for _ in range(2):
        guest, tried, there = call(service, called)
        assert "instance.pyc" in guest
        assert tried == [30, 30, 30]
        assert there == ["Lambswool", "lambswool", "lib", "python"]
        # What the guest needs for a failure, it reads now.
        failed = json.loads(service.invoke(FunctionName=called, Payload=b"1")["Payload"].read())
        assert failed["errorType"] == "KeyError"
    log = Path(os.environ["WOOL_LOG"])
    assert not any("EVIL RAN" in path.read_text() for path in log.rglob("*") if path.is_file())


def test_a_layer_is_its_tenants_alone():
    other = client(token("OTHERS_TOKEN"))
    layer = name("l")
    ours = arn(says("ours"), layer=layer)
    for named in (layer, LAYER + layer):
        with refused("ResourceNotFoundException", 404, "does not exist"):
            other.get_layer_version(LayerName=named, VersionNumber=1)
    assert other.list_layer_versions(LayerName=layer)["LayerVersions"] == []
    assert all(one["LayerName"] != layer for one in other.list_layers()["Layers"])

    def told(wanted):
        """What the other tenant is told of an ARN."""
        with refused("InvalidParameterValueException", 400, f"Layer version {wanted} does not"):
            create(other, IMPORTS, Layers=[wanted])

    # Nothing tells whether it is there.
    told(ours)
    told(f"{LAYER}nothing-here:1")
    service.add_layer_version_permission(
        LayerName=layer,
        VersionNumber=1,
        StatementId="all",
        Action="lambda:GetLayerVersion",
        Principal="*",
    )
    told(ours)
    other.delete_layer_version(LayerName=layer, VersionNumber=1)
    assert service.get_layer_version(LayerName=layer, VersionNumber=1)["Version"] == 1
    # The other tenant's layer of that name is another one.
    theirs = other.publish_layer_version(
        LayerName=layer, Content={"ZipFile": packed(says("theirs"))}
    )
    assert theirs["LayerVersionArn"] == ours
    called = create(other, IMPORTS, Layers=[ours])
    assert call(other, called)[0] == "theirs"
    assert call(service, create(service, IMPORTS, Layers=[ours]))[0] == "ours"


def test_a_caller_does_no_more_with_layers_than_its_token_allows():
    caller = client(token("CALLERS_TOKEN"))
    layer = name("only")
    publish(says("x"), layer)
    for operation, said in [
        (caller.publish_layer_version, {"LayerName": layer, "Content": {"ZipFile": packed({})}}),
        (caller.get_layer_version, {"LayerName": layer, "VersionNumber": 1}),
        (caller.delete_layer_version, {"LayerName": layer, "VersionNumber": 1}),
        (caller.list_layers, {}),
        (caller.get_layer_version_policy, {"LayerName": layer, "VersionNumber": 1}),
    ]:
        with refused("AccessDeniedException", 403, "it takes the scope"):
            operation(**said)


def add(layer, statement, **said):
    said = {"Action": "lambda:GetLayerVersion", "Principal": "123456789012"} | said
    answer = service.add_layer_version_permission(
        LayerName=layer, VersionNumber=1, StatementId=statement, **said
    )
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 201
    return json.loads(answer["Statement"]), answer["RevisionId"]


def test_a_policy_of_a_layer_is_kept_and_shown():
    layer = name("l")
    publish(says("x"), layer)
    of = {"LayerName": layer, "VersionNumber": 1}
    none = "No policy is associated with the given resource."
    with refused("ResourceNotFoundException", 404, none):
        service.get_layer_version_policy(**of)
    with refused("ResourceNotFoundException", 404, none):
        service.remove_layer_version_permission(StatementId="a", **of)
    first, _ = add(layer, "a")
    assert first == {
        "Sid": "a",
        "Effect": "Allow",
        "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
        "Action": "lambda:GetLayerVersion",
        "Resource": f"{LAYER}{layer}:1",
    }
    second, revision = add(LAYER + layer, "b", Principal="*", OrganizationId="o-1234567890")
    assert second["Principal"] == "*"
    assert second["Condition"] == {"StringEquals": {"aws:PrincipalOrgID": "o-1234567890"}}
    policy = service.get_layer_version_policy(**of)
    assert policy["RevisionId"] == revision
    assert json.loads(policy["Policy"])["Statement"] == [first, second]
    with refused("ResourceConflictException", 409, "statement id (a) provided already exists"):
        add(layer, "a")
    with refused("PreconditionFailedException", 412, "Call the GetLayerPolicy API"):
        add(layer, "c", RevisionId="an-older-one")
    with refused("PreconditionFailedException", 412, "Call the GetLayerPolicy API"):
        service.remove_layer_version_permission(StatementId="a", RevisionId="older", **of)
    with refused("InvalidParameterValueException", 400, "Principal *"):
        add(layer, "c", OrganizationId="o-1234567890")
    with refused("ValidationException", 400, "action"):
        add(layer, "c", Action="lambda:InvokeFunction")
    with refused("ValidationException", 400, "principal"):
        add(layer, "c", Principal="somebody")
    with refused("ResourceNotFoundException", 404, "Statement c is not found"):
        service.remove_layer_version_permission(StatementId="c", **of)
    removed = service.remove_layer_version_permission(StatementId="a", RevisionId=revision, **of)
    assert removed["ResponseMetadata"]["HTTPStatusCode"] == 204
    policy = service.get_layer_version_policy(**of)
    assert json.loads(policy["Policy"])["Statement"] == [second]
    service.remove_layer_version_permission(StatementId="b", **of)
    with refused("ResourceNotFoundException", 404, none):
        service.get_layer_version_policy(**of)
    missing = f"Layer version {LAYER}{layer}:2 does not exist."
    other = of | {"VersionNumber": 2}
    for operation, said in [
        (service.get_layer_version_policy, {}),
        (service.remove_layer_version_permission, {"StatementId": "a"}),
        (
            service.add_layer_version_permission,
            {"StatementId": "a", "Action": "lambda:GetLayerVersion", "Principal": "*"},
        ),
    ]:
        with refused("ResourceNotFoundException", 404, missing):
            operation(**other, **said)
        with refused("InvalidParameterValueException", 400, "less than 1"):
            operation(**(other | {"VersionNumber": 0}), **said)
    add(layer, "a")
    service.delete_layer_version(**of)
    with refused("ResourceNotFoundException", 404, f"{LAYER}{layer}:1 does not exist"):
        service.get_layer_version_policy(**of)


def test_the_command_line_publishes_lists_and_attaches(tmp_path):
    program = Path(sys.executable).with_name("aws")
    layer, called = name("l"), create(service, IMPORTS)
    archive = tmp_path / "layer.zip"
    archive.write_bytes(packed(says("from the command line")))

    def aws(*words):
        said = subprocess.run([program, "lambda", *words], capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout or "{}")

    published = aws(
        "publish-layer-version",
        f"--layer-name={layer}",
        f"--zip-file=fileb://{archive}",
        "--compatible-runtimes=python3.11",
    )
    assert published["Version"] == 1
    versions = aws("list-layer-versions", f"--layer-name={layer}")["LayerVersions"]
    assert [one["LayerVersionArn"] for one in versions] == [published["LayerVersionArn"]]
    changed = aws(
        "update-function-configuration",
        f"--function-name={called}",
        f"--layers={published['LayerVersionArn']}",
    )
    assert changed["FunctionArn"] == ARN + called
    assert call(service, called)[0] == "from the command line"
    aws("delete-layer-version", f"--layer-name={layer}", "--version-number=1")
    assert aws("list-layer-versions", f"--layer-name={layer}")["LayerVersions"] == []
