"""Tools and libraries of AWS Lambda's users, which know nothing of Lambswool."""

import importlib
import io
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import zipfile

import pytest
from service import call, client, create, refused

service = client()
TOOLS = pathlib.Path(sys.executable).parent


def bundle(source, *packages):
    """A zip of one file, with packages beside it as `pip install --target` leaves them."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("app.py", source)
        for package in packages:
            origin = importlib.import_module(package).__file__
            files = [pathlib.Path(origin)]
            if files[0].name == "__init__.py":
                files = files[0].parent.rglob("*.py")
                top = pathlib.Path(origin).parent.parent
            else:
                top = files[0].parent
            for file in files:
                zipped.write(file, file.relative_to(top))
    return packed.getvalue()


def url_event(path, method="GET", body=None):
    """An event of payload format 2.0, as function URLs and HTTP APIs send it."""
    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "n=2&n=3",
        "queryStringParameters": {"n": "2,3"},
        "headers": {"host": "x.lambda-url.us-east-1.localhost", "accept": "*/*"},
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "x",
            "domainName": "x.lambda-url.us-east-1.localhost",
            "domainPrefix": "x",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "curl",
            },
            "requestId": "r",
            "routeKey": "$default",
            "stage": "$default",
            "time": "05/Aug/2022:08:14:39 +0000",
            "timeEpoch": 1659687279885,
        },
        "isBase64Encoded": False,
    }
    return event | ({"body": body} if body is not None else {})


def test_an_asgi_application_answers_through_mangum():
    source = (
        "import mangum\n"
        "async def application(scope, receive, send):\n"
        "    body = (await receive())['body']\n"
        "    said = ' '.join([scope['method'], scope['path'], scope['query_string'].decode()])\n"
        "    await send({'type': 'http.response.start', 'status': 201,\n"
        "                'headers': [(b'content-type', b'text/plain')]})\n"
        "    await send({'type': 'http.response.body', 'body': said.encode() + body})\n"
        "handler = mangum.Mangum(application, lifespan='off')\n"
    )
    zipped = bundle(source, "mangum", "typing_extensions")
    called = create(service, Code={"ZipFile": zipped}, Timeout=20)
    answer = call(service, called, url_event("/a/b", "POST", "!"))
    assert (answer["statusCode"], answer["body"]) == (201, "POST /a/b n=2&n=3!"), answer
    assert answer["headers"]["content-type"] == "text/plain"


def test_powertools_route_and_log_a_request():
    source = (
        "from aws_lambda_powertools import Logger\n"
        "from aws_lambda_powertools.event_handler import LambdaFunctionUrlResolver\n"
        "logger = Logger(service='shop')\n"
        "app = LambdaFunctionUrlResolver()\n"
        "@app.get('/items/<name>')\n"
        "def item(name):\n"
        "    event = app.current_event\n"
        "    return {'name': name, 'accept': event.headers['accept'], 'path': event.path}\n"
        "@logger.inject_lambda_context\n"
        "def handler(event, context):\n"
        "    logger.info('routing')\n"
        "    return app.resolve(event, context)\n"
    )
    zipped = bundle(source, "aws_lambda_powertools", "jmespath", "typing_extensions")
    called = create(service, Code={"ZipFile": zipped}, Timeout=20, MemorySize=256)
    answer = call(service, called, url_event("/items/hat"))
    assert answer["statusCode"] == 200 and json.loads(answer["body"])["name"] == "hat", answer
    assert call(service, called, url_event("/nothing"))["statusCode"] == 404


@pytest.fixture
def identities(tmp_path):
    """A server for the two other services that chalice asks; returns where it is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(tmp_path / "moto.log", "w") as log:
        command = [TOOLS / "moto_server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while socket.socket().connect_ex(("127.0.0.1", port)):
                assert time.monotonic() < until and server.poll() is None, "no server"
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def test_chalice_deploys_deploys_again_and_deletes(tmp_path, identities):
    app = tmp_path / "app"
    (app / ".chalice").mkdir(parents=True)
    config = {"version": "2.0", "app_name": "shop", "stages": {"dev": {}}}
    (app / ".chalice/config.json").write_text(json.dumps(config))
    (app / "requirements.txt").write_text("")
    others = ("IAM", "STS", "API_GATEWAY")
    environment = os.environ | {f"AWS_ENDPOINT_URL_{one}": identities for one in others}

    def chalice(*words):
        command = [TOOLS / "chalice", *words]
        said = subprocess.run(command, cwd=app, env=environment, text=True, capture_output=True)
        assert said.returncode == 0, said.stdout + said.stderr
        return said.stdout

    for word in ("one", "two"):
        (app / "app.py").write_text(
            "from chalice import Chalice\n"
            "app = Chalice(app_name='shop')\n"
            "@app.lambda_function(name='hello')\n"
            "def hello(event, context):\n"
            f"    return [{word!r}, event, context.function_name]\n"
        )
        assert "Lambda ARN: arn:aws:lambda:us-east-1:000000000000:function:shop-dev-hello" in (
            chalice("deploy")
        )
        assert call(service, "shop-dev-hello", 1) == [word, 1, "shop-dev-hello"]
    chalice("delete")
    with refused("ResourceNotFoundException", 404):
        service.get_function(FunctionName="shop-dev-hello")
