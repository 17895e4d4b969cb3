# /// script
# dependencies = ["werkzeug==3.1.9"]
# ///
from werkzeug.test import Client
from werkzeug.wrappers import Request, Response


@Request.application
def application(request):
    return Response(request.args["sheep"] * 2)


def work() -> None:
    answer = Client(application).get("/?sheep=42")
    assert answer.status_code == 200 and answer.text == "4242", answer.text
