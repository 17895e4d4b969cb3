"""Published versions and aliases."""

from service import ARN, archive, call, client, create, refused

service = client()


def says(word):
    return f"def handler(event, context):\n    return {word!r}\n"


def changed(called, word):
    service.update_function_code(FunctionName=called, ZipFile=archive(app=says(word)))


def test_a_published_version_stays_as_it_was():
    called = create(service, says("one"), Description="the first")
    first = service.publish_version(FunctionName=called)
    assert (first["Version"], first["FunctionArn"]) == ("1", f"{ARN}{called}:1")
    assert first["Description"] == "the first"
    assert service.publish_version(FunctionName=called)["Version"] == "1"
    changed(called, "two")
    current = service.get_function_configuration(FunctionName=called)
    with refused("InvalidParameterValueException", 400, "is different from current CodeSHA256"):
        service.publish_version(FunctionName=called, CodeSha256=first["CodeSha256"])
    with refused("PreconditionFailedException", 412):
        service.publish_version(FunctionName=called, RevisionId=first["RevisionId"])
    second = service.publish_version(
        FunctionName=called, CodeSha256=current["CodeSha256"], Description="the second"
    )
    assert (second["Version"], second["Description"]) == ("2", "the second")
    changed(called, "three")
    assert [call(service, called, Qualifier=q) for q in ("1", "2", "$LATEST")] == [
        "one",
        "two",
        "three",
    ]
    assert service.invoke(FunctionName=f"{called}:2")["ExecutedVersion"] == "2"
    versions = service.list_versions_by_function(FunctionName=called)["Versions"]
    assert [one["Version"] for one in versions] == ["$LATEST", "1", "2"]
    assert [one["FunctionArn"].rsplit(":", 1)[1] for one in versions] == ["$LATEST", "1", "2"]
    shown = service.get_function(FunctionName=called, Qualifier="2")["Configuration"]
    assert (shown["Version"], shown["Description"]) == ("2", "the second")
    every = service.list_functions(FunctionVersion="ALL")["Functions"]
    assert [one["Version"] for one in every if one["FunctionName"] == called] == [
        "$LATEST",
        "1",
        "2",
    ]
    service.delete_function(FunctionName=called, Qualifier="1")
    with refused("ResourceNotFoundException", 404, f"Function not found: {ARN}{called}:1"):
        service.invoke(FunctionName=called, Qualifier="1")
    changed(called, "four")
    assert service.publish_version(FunctionName=called)["Version"] == "3"
    for qualifier, words in (("$LATEST", "without deleting"), ("live", "aliases is not")):
        with refused("InvalidParameterValueException", 400, words):
            service.delete_function(FunctionName=called, Qualifier=qualifier)


def test_a_function_may_be_published_as_it_is_made():
    called = create(service, says("one"), Publish=True)
    assert call(service, called, Qualifier="1") == "one"
    updated = service.update_function_code(
        FunctionName=called, ZipFile=archive(app=says("two")), Publish=True
    )
    assert (updated["Version"], updated["FunctionArn"]) == ("2", f"{ARN}{called}:2")


def test_an_alias_may_point_to_whatever_is_current():
    called = create(service, says("one"), Publish=True)
    made = service.create_alias(FunctionName=called, Name="now", FunctionVersion="$LATEST")
    assert made["FunctionVersion"] == "$LATEST"
    assert service.get_alias(FunctionName=called, Name="now") | made == made | {
        "ResponseMetadata": made["ResponseMetadata"]
    }
    assert call(service, called, Qualifier="now") == "one"
    service.update_function_code(FunctionName=called, ZipFile=archive(app=says("two")))
    assert call(service, called, Qualifier="now") == "two"
    answer = service.invoke(FunctionName=called, Qualifier="now")
    assert answer["ExecutedVersion"] == "$LATEST"
    listed = service.list_aliases(FunctionName=called, FunctionVersion="$LATEST")["Aliases"]
    assert [one["Name"] for one in listed] == ["now"]
    words, weights = (
        "$LATEST is not supported for an alias",
        {"AdditionalVersionWeights": {"1": 0.5}},
    )
    with refused("InvalidParameterValueException", 400, words):
        service.update_alias(FunctionName=called, Name="now", RoutingConfig=weights)
    moved = service.update_alias(
        FunctionName=called, Name="now", FunctionVersion="1", RoutingConfig={}
    )
    assert moved["FunctionVersion"] == "1" and call(service, called, Qualifier="now") == "one"
    service.update_alias(FunctionName=called, Name="now", FunctionVersion="$LATEST")
    # A number is free to go when no alias points to it.
    service.delete_function(FunctionName=called, Qualifier="1")
    assert call(service, called, Qualifier="now") == "two"
    with refused("InvalidParameterValueException", 400, "unpublished function versions"):
        service.put_provisioned_concurrency_config(
            FunctionName=called, Qualifier="now", ProvisionedConcurrentExecutions=1
        )


def test_an_alias_points_to_a_version_and_shares_its_calls():
    called = create(service, says("one"), Publish=True)
    service.update_function_code(
        FunctionName=called, ZipFile=archive(app=says("two")), Publish=True
    )
    made = service.create_alias(
        FunctionName=called, Name="live", FunctionVersion="1", Description="now"
    )
    arn = f"{ARN}{called}:live"
    assert (made["AliasArn"], made["FunctionVersion"], made["Description"]) == (arn, "1", "now")
    with refused("ResourceConflictException", 409, f"Alias already exists: {arn}"):
        service.create_alias(FunctionName=called, Name="live", FunctionVersion="2")
    assert call(service, called, Qualifier="live") == "one"
    assert (
        service.get_function(FunctionName=f"{called}:live")["Configuration"]["FunctionArn"] == arn
    )
    moved = service.update_alias(FunctionName=called, Name="live", FunctionVersion="2")
    assert moved["Description"] == "now" and moved["RevisionId"] != made["RevisionId"]
    assert call(service, f"{called}:live") == "two"
    with refused("PreconditionFailedException", 412):
        service.update_alias(FunctionName=called, Name="live", RevisionId=made["RevisionId"])
    weights = {"AdditionalVersionWeights": {"1": 0.5}}
    shared = service.update_alias(FunctionName=called, Name="live", RoutingConfig=weights)
    assert shared["RoutingConfig"] == weights
    assert {call(service, called, Qualifier="live") for _ in range(60)} == {"one", "two"}
    alone = service.update_alias(FunctionName=called, Name="live", RoutingConfig={})
    assert "RoutingConfig" not in alone
    for wrong, words in (
        ({"1": 0.1, "2": 0.1}, "cannot be greater than 1"),
        ({"2": 0.1}, "already included"),
    ):
        with refused("InvalidParameterValueException", 400, words):
            service.update_alias(
                FunctionName=called,
                Name="live",
                FunctionVersion="2",
                RoutingConfig={"AdditionalVersionWeights": wrong},
            )
    with refused("ResourceNotFoundException", 404):
        service.update_alias(FunctionName=called, Name="live", FunctionVersion="9")
    with refused("ResourceConflictException", 409):
        service.delete_function(FunctionName=called, Qualifier="2")
    service.create_alias(FunctionName=called, Name="beta", FunctionVersion="1")
    names = [one["Name"] for one in service.list_aliases(FunctionName=called)["Aliases"]]
    assert names == ["beta", "live"]
    of_one = service.list_aliases(FunctionName=called, FunctionVersion="1")["Aliases"]
    assert [one["Name"] for one in of_one] == ["beta"]
    for _ in range(2):
        service.delete_alias(FunctionName=called, Name="live")
    with refused("ResourceNotFoundException", 404, f"Cannot find alias arn: {arn}"):
        service.get_alias(FunctionName=called, Name="live")
    with refused("ResourceNotFoundException", 404, f"Alias not found: {arn}"):
        service.update_alias(FunctionName=called, Name="live")
    with refused("ValidationException", 400, "at 'name' failed to satisfy constraint"):
        service.create_alias(FunctionName=called, Name="12", FunctionVersion="1")
