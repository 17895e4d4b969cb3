"""Says hello: nothing to install, nothing to wait for."""


def handler(event, context):
    name = event.get("name", "world") if isinstance(event, dict) else "world"
    print(f"greeting {name}")
    return {"message": f"Hello, {name}!", "request": context.aws_request_id}
