# /// script
# dependencies = ["pyramid==2.1", "apig-wsgi==2.20.0", "setuptools<81"]
# ///
# Pyramid's application of one file, behind apig-wsgi.
from apig_wsgi import make_lambda_handler
from pyramid.config import Configurator
from pyramid.httpexceptions import HTTPSeeOther
from pyramid.response import Response
from request import request


def hello_world(request):
    return Response(f"Hello {request.matchdict['name']}!")


def told(request):
    return {"args": dict(request.params), "n": request.json_body["n"] + 1}


def away(request):
    return HTTPSeeOther(request.route_url("hello", name="you"))


with Configurator() as config:
    config.add_route("hello", "/hello/{name}")
    config.add_view(hello_world, route_name="hello")
    config.add_route("told", "/told")
    config.add_view(told, route_name="told", renderer="json")
    config.add_route("away", "/away")
    config.add_view(away, route_name="away")
    handler = make_lambda_handler(config.make_wsgi_app())


def work() -> None:
    import json

    assert handler(request("GET", "/hello/w%C3%B6ol"), None)["body"] == "Hello wöol!"
    answer = handler(request("POST", "/told", query="a=1", body='{"n": 41}'), None)
    assert json.loads(answer["body"]) == {"args": {"a": "1"}, "n": 42}, answer
    answer = handler(request("GET", "/away"), None)
    assert answer["statusCode"] == 303 and answer["headers"]["location"].endswith("/hello/you"), (
        answer
    )
