# /// script
# dependencies = ["connexion[flask,swagger-ui]==3.3.0", "mangum==0.22.0"]
# ///
# Connexion's hello world from a specification, behind Mangum.
import os
import tempfile

from connexion import AsyncApp
from mangum import Mangum
from request import request

SPECIFICATION = """
openapi: 3.0.0
info: {title: Hello, version: "1"}
paths:
  /greeting/{name}:
    post:
      operationId: entry.post_greeting
      parameters:
        - {name: name, in: path, required: true, schema: {type: string}}
        - {name: times, in: query, schema: {type: integer, minimum: 1, default: 1}}
      responses:
        "200": {description: greeting, content: {application/json: {schema: {type: object}}}}
"""


async def post_greeting(name: str, times: int):
    return {"greeting": f"Hello {name}" * times}


def resolve(name):
    return post_greeting


directory = tempfile.mkdtemp()
with open(os.path.join(directory, "openapi.yaml"), "w") as file:
    file.write(SPECIFICATION)

from connexion.resolver import Resolver  # noqa: E402

app = AsyncApp("farm", specification_dir=directory)
app.add_api("openapi.yaml", resolver=Resolver(resolve), validate_responses=True)
handler = Mangum(app, lifespan="off")


def work() -> None:
    import json

    answer = handler(request("POST", "/greeting/wool", query="times=2"), None)
    assert answer["statusCode"] == 200, answer
    assert json.loads(answer["body"]) == {"greeting": "Hello woolHello wool"}
    assert handler(request("POST", "/greeting/wool", query="times=0"), None)["statusCode"] == 400
