# /// script
# dependencies = ["aws-lambda-powertools[parser]==3.37.0"]
# ///
# The utilities' first example: a logger, an event handler, validation; the tracer is off.
import os

from request import request

os.environ["POWERTOOLS_TRACE_DISABLED"] = "1"
os.environ["POWERTOOLS_SERVICE_NAME"] = "farm"

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.logging import correlation_paths
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
metrics = Metrics(namespace="farm")
app = APIGatewayHttpResolver(enable_validation=True)


@app.get("/hello/<name>")
def hello_name(name: str) -> dict:
    logger.info(f"Request from {name} received")
    metrics.add_metric(name="hello", unit=MetricUnit.Count, value=1)
    return {"message": f"hello {name}!"}


@app.get("/add/<left>/<right>")
def add(left: int, right: int) -> int:
    return left + right


@logger.inject_lambda_context(
    correlation_id_path=correlation_paths.API_GATEWAY_HTTP, log_event=True
)
@metrics.log_metrics(capture_cold_start_metric=False)
def handler(event: dict, context: LambdaContext) -> dict:
    return app.resolve(event, context)


def work(context) -> None:
    import json

    answer = handler(request("GET", "/hello/dölly"), context)
    assert answer["statusCode"] == 200 and json.loads(answer["body"]) == {
        "message": "hello dölly!"
    }, answer
    assert handler(request("GET", "/add/19/23"), context)["body"] == "42"
    assert handler(request("GET", "/add/19/x"), context)["statusCode"] == 422
    assert handler(request("GET", "/nowhere"), context)["statusCode"] == 404
