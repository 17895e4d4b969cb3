"""Settings that have one value, or no effect."""

from service import ARN, client, create, name, refused

service = client()


def test_no_function_has_a_code_signing_configuration():
    answer = service.get_function_code_signing_config(FunctionName=create(service, called="signed"))
    assert answer["FunctionName"] == "signed" and "CodeSigningConfigArn" not in answer
    missing = name()
    with refused("ResourceNotFoundException", 404, f"Function not found: {ARN}{missing}"):
        service.get_function_code_signing_config(FunctionName=missing)


def test_runtimes_are_updated_as_the_machine_is():
    called = create(service, Publish=True)
    for said, qualifier in (({}, "$LATEST"), ({"Qualifier": "1"}, "1")):
        shown = service.get_runtime_management_config(FunctionName=called, **said)
        put = service.put_runtime_management_config(
            FunctionName=called, UpdateRuntimeOn="Auto", **said
        )
        for answer in (shown, put):
            assert answer["UpdateRuntimeOn"] == "Auto"
            assert answer["FunctionArn"] == f"{ARN}{called}:{qualifier}"
    for other in ("Manual", "FunctionUpdate"):
        with refused("InvalidParameterValueException", 400, "can only be Auto"):
            service.put_runtime_management_config(FunctionName=called, UpdateRuntimeOn=other)
    with refused("ResourceNotFoundException", 404, f"Function not found: {ARN}{called}:9"):
        service.get_runtime_management_config(FunctionName=called, Qualifier="9")


def test_what_is_said_of_recursion_is_kept():
    called = create(service)
    shown = service.get_function_recursion_config(FunctionName=called)
    assert shown["RecursiveLoop"] == "Terminate"
    for word in ("Allow", "Terminate"):
        put = service.put_function_recursion_config(FunctionName=called, RecursiveLoop=word)
        shown = service.get_function_recursion_config(FunctionName=called)
        assert put["RecursiveLoop"] == shown["RecursiveLoop"] == word
    missing = name()
    with refused("ResourceNotFoundException", 404, f"Function not found: {ARN}{missing}"):
        service.put_function_recursion_config(FunctionName=missing, RecursiveLoop="Allow")
