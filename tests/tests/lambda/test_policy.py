"""Policies: kept and shown, statement by statement."""

import json

from service import ARN, archive, call, client, create, refused, token

service = client()


def add(called, statement, **said):
    said = {"Action": "lambda:InvokeFunction", "Principal": "s3.amazonaws.com"} | said
    answer = service.add_permission(FunctionName=called, StatementId=statement, **said)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 201
    return json.loads(answer["Statement"])


def policy(called, **said):
    return json.loads(service.get_policy(FunctionName=called, **said)["Policy"])


def gone(called, **said):
    with refused("ResourceNotFoundException", 404, "The resource you requested does not exist."):
        service.get_policy(FunctionName=called, **said)


def test_a_statement_says_what_was_asked_for():
    called = create(service)
    gone(called)
    first = add(
        called,
        "s3",
        SourceArn="arn:aws:s3:::bucket",
        SourceAccount="123456789012",
        EventSourceToken="token-1",
        PrincipalOrgID="o-1234567890",
    )
    assert first == {
        "Sid": "s3",
        "Effect": "Allow",
        "Principal": {"Service": "s3.amazonaws.com"},
        "Action": "lambda:InvokeFunction",
        "Resource": ARN + called,
        "Condition": {
            "ArnLike": {"AWS:SourceArn": "arn:aws:s3:::bucket"},
            "StringEquals": {
                "AWS:SourceAccount": "123456789012",
                "lambda:EventSourceToken": "token-1",
                "aws:PrincipalOrgID": "o-1234567890",
            },
        },
    }
    second = add(
        called,
        "url",
        Action="lambda:InvokeFunctionUrl",
        Principal="*",
        FunctionUrlAuthType="NONE",
    )
    assert second["Principal"] == "*"
    assert second["Condition"] == {"StringEquals": {"lambda:FunctionUrlAuthType": "NONE"}}
    third = add(called, "account", Principal="123456789012", InvokedViaFunctionUrl=True)
    assert third["Principal"] == {"AWS": "arn:aws:iam::123456789012:root"}
    assert third["Condition"] == {"Bool": {"lambda:InvokedViaFunctionUrl": "true"}}
    fourth = add(called, "user", Principal="arn:aws:iam::123456789012:user/me")
    assert fourth["Principal"] == {"AWS": "arn:aws:iam::123456789012:user/me"}
    assert "Condition" not in fourth
    statements = [first, second, third, fourth]
    assert policy(called) == {"Version": "2012-10-17", "Id": "default", "Statement": statements}
    # It gives no rights: a token does.
    other = client(token("OTHERS_TOKEN"))
    add(called, "everyone", Principal="*")
    with refused("ResourceNotFoundException", 404):
        call(other, called)


def test_a_function_an_alias_and_a_version_have_policies_of_their_own():
    called = create(service, Publish=True)
    service.create_alias(FunctionName=called, Name="live", FunctionVersion="1")
    assert add(called, "a")["Resource"] == ARN + called
    assert add(called, "a", Qualifier="live")["Resource"] == f"{ARN}{called}:live"
    assert add(f"{called}:1", "a")["Resource"] == f"{ARN}{called}:1"
    for qualifier in ("live", "1"):
        (one,) = policy(called, Qualifier=qualifier)["Statement"]
        assert one["Resource"].endswith(f":{qualifier}")
    gone(called, Qualifier="$LATEST")
    # A policy goes with its alias.
    service.delete_alias(FunctionName=called, Name="live")
    gone(called, Qualifier="live")
    service.create_alias(FunctionName=called, Name="live", FunctionVersion="1")
    gone(called, Qualifier="live")
    assert len(policy(f"{called}:1")["Statement"]) == 1


def test_a_function_that_was_deployed_otherwise_has_a_policy_too():
    add("native", "a")
    assert policy("native")["Statement"][0]["Resource"] == f"{ARN}native"


def test_statements_are_removed_one_by_one():
    called = create(service)
    words = "No policy is associated with the given resource."
    with refused("ResourceNotFoundException", 404, words):
        service.remove_permission(FunctionName=called, StatementId="a")
    add(called, "a")
    add(called, "b")
    with refused("ResourceNotFoundException", 404, "Statement c is not found in resource policy."):
        service.remove_permission(FunctionName=called, StatementId="c")
    removed = service.remove_permission(FunctionName=called, StatementId="a")
    assert removed["ResponseMetadata"]["HTTPStatusCode"] == 204
    assert [one["Sid"] for one in policy(called)["Statement"]] == ["b"]
    service.remove_permission(FunctionName=called, StatementId="b")
    gone(called)
    with refused("ResourceNotFoundException", 404, f"No policy found for: {ARN}nothing-here"):
        service.remove_permission(FunctionName="nothing-here", StatementId="a")
    add(called, "a")
    service.delete_function(FunctionName=called)
    create(service, called=called)
    gone(called)


def test_a_policy_changes_only_as_its_caller_has_seen_it():
    called = create(service)
    add(called, "a")
    seen = service.get_policy(FunctionName=called)["RevisionId"]
    add(called, "b", RevisionId=seen)
    with refused("PreconditionFailedException", 412, "Call the GetPolicy API"):
        add(called, "c", RevisionId=seen)
    with refused("PreconditionFailedException", 412, "Call the GetPolicy API"):
        service.remove_permission(FunctionName=called, StatementId="a", RevisionId=seen)
    now = service.get_policy(FunctionName=called)["RevisionId"]
    assert now != seen
    service.remove_permission(FunctionName=called, StatementId="a", RevisionId=now)
    assert [one["Sid"] for one in policy(called)["Statement"]] == ["b"]
    # Another version of the code changes nothing of it.
    service.update_function_code(FunctionName=called, ZipFile=archive(app="handler = print\n"))
    assert [one["Sid"] for one in policy(called)["Statement"]] == ["b"]


def test_what_no_policy_may_say_is_refused():
    called = create(service, Publish=True)
    add(called, "a")
    with refused("ResourceConflictException", 409, "The statement id (a) provided already exists"):
        add(called, "a")
    with refused("InvalidParameterValueException", 400, "adding policies for $LATEST"):
        add(called, "b", Qualifier="$LATEST")
    with refused("InvalidParameterValueException", 400, "The provided principal was invalid"):
        add(called, "b", Principal="somebody")
    with refused("ResourceNotFoundException", 404, f"Cannot find alias arn: {ARN}{called}:none"):
        add(called, "b", Qualifier="none")
    with refused("ResourceNotFoundException", 404, f"Function not found: {ARN}{called}:9"):
        add(called, "b", Qualifier="9")
    with refused("ResourceNotFoundException", 404, f"Function not found: {ARN}nothing-here"):
        add("nothing-here", "b")
    for wrong in ({"SourceArn": "bucket"}, {"SourceAccount": "12"}, {"Action": "s3:Get"}):
        with refused("ValidationException", 400, "failed to satisfy constraint"):
            add(called, "b", **wrong)
    with refused("PolicyLengthExceededException", 400, "is bigger than the limit (20480)"):
        add(called, "b", SourceArn="arn:aws:s3:::" + "x" * 9000)
        add(called, "c", SourceArn="arn:aws:s3:::" + "x" * 9000)
        add(called, "d", SourceArn="arn:aws:s3:::" + "x" * 9000)
    assert [one["Sid"] for one in policy(called)["Statement"]] == ["a", "b", "c"]
