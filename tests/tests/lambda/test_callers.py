"""What a token allows, by this API as by the other one."""

from service import call, client, create, name, refused, token

service = client()
caller = client(token("CALLERS_TOKEN"))
other = client(token("OTHERS_TOKEN"))


def test_a_token_that_calls_does_nothing_else_and_calls_no_other_function():
    mine, foreign = create(service, called=name("only")), create(service, called=name("no"))
    assert call(caller, mine, 3) == 3
    with refused("AccessDeniedException", 403, "is not for the function"):
        call(caller, foreign)
    for refusal in (
        lambda: caller.list_functions(),
        lambda: caller.get_function(FunctionName=mine),
        lambda: caller.delete_function(FunctionName=mine),
        lambda: caller.publish_version(FunctionName=mine),
        lambda: caller.create_alias(FunctionName=mine, Name="a", FunctionVersion="1"),
        lambda: caller.tag_resource(Resource=mine_arn(mine), Tags={"a": "b"}),
        lambda: caller.get_policy(FunctionName=mine),
        lambda: caller.remove_permission(FunctionName=mine, StatementId="a"),
        lambda: create(caller, called=name("only")),
        lambda: caller.list_event_source_mappings(),
    ):
        with refused("AccessDeniedException", 403, "it takes the scope"):
            refusal()
    assert service.get_function(FunctionName=mine)


def mine_arn(called):
    return f"arn:aws:lambda:us-east-1:000000000000:function:{called}"


def test_another_tenants_functions_are_not_there():
    mine = create(service, called=name("mine"))
    with refused("ResourceNotFoundException", 404):
        other.get_function(FunctionName=mine_arn(mine))
    with refused("ResourceNotFoundException", 404):
        call(other, mine)
    with refused("ResourceNotFoundException", 404):
        other.delete_function(FunctionName=mine)
    with refused("ResourceNotFoundException", 404):
        other.remove_permission(FunctionName=mine, StatementId="a")
    # The same name is another function.
    create(other, "def handler(event, context): return 'other'", called=mine)
    assert (call(service, mine, 1), call(other, mine, 1)) == (1, "other")
    assert mine in [one["FunctionName"] for one in other.list_functions()["Functions"]]


def test_what_is_no_token_is_no_caller():
    for wrong in ("wool_000000000000_" + "0" * 64, "wool_x"):
        with refused("UnrecognizedClientException", 403):
            client(wrong).list_functions()
    # A session of the service means nothing here.
    with refused("UnrecognizedClientException", 403, "a token with the scope"):
        client("IQoJb3JpZ2luX2VjEJr").list_functions()
