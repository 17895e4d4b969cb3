# /// script
# dependencies = ["slack-bolt==1.30.0", "boto3==1.44.8"]
# ///
# Bolt's example for functions: a sealed request, a command, a listener.
import hashlib
import hmac
import json
import time

from request import request
from slack_bolt import App
from slack_bolt.adapter.aws_lambda import SlackRequestHandler

SECRET = "wool"
app = App(
    signing_secret=SECRET,
    token="xoxb-none",
    token_verification_enabled=False,
    process_before_response=True,
    request_verification_enabled=True,
    authorize=None,
    url_verification_enabled=True,
)
heard = []


@app.command("/hello", middleware=[])
def hello(ack, body):
    heard.append(body["text"])
    ack(f"Hi <@{body['user_id']}>!")


def handler(event, context):
    return SlackRequestHandler(app=app).handle(event, context)


def work(context) -> None:
    def ask(body, kind, secret=SECRET):
        event = request("POST", "/slack/events", body=body)
        now = str(int(time.time()))
        seal = hmac.new(secret.encode(), f"v0:{now}:{body}".encode(), hashlib.sha256).hexdigest()
        more = {
            "x-slack-request-timestamp": now,
            "x-slack-signature": f"v0={seal}",
            "content-type": kind,
        }
        event["headers"].update(more)
        return handler(event, context)

    told = ask(json.dumps({"type": "url_verification", "challenge": "c"}), "application/json")
    assert told["statusCode"] == 200 and json.loads(told["body"]) == {"challenge": "c"}, told
    refused = ask(
        json.dumps({"type": "url_verification", "challenge": "c"}), "application/json", "flax"
    )
    assert refused["statusCode"] == 401, refused
