# /// script
# dependencies = ["pynacl==1.6.2"]
# ///
# The check of a request's seal that Discord documents for interactions, and a command's answer.
import json

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey
from request import request

ours = SigningKey(bytes(range(32)))
PUBLIC_KEY = ours.verify_key.encode().hex()


def handler(event, context):
    headers, body = event["headers"], event["body"]
    verify_key = VerifyKey(bytes.fromhex(PUBLIC_KEY))
    timestamp, seal = headers["x-signature-timestamp"], headers["x-signature-ed25519"]
    try:
        verify_key.verify(f"{timestamp}{body}".encode(), bytes.fromhex(seal))
    except BadSignatureError:
        return {"statusCode": 401, "body": "invalid request signature"}
    told = json.loads(body)
    if told["type"] == 1:
        return {"statusCode": 200, "body": json.dumps({"type": 1})}
    content = f"hello {told['data']['name']}"
    return {"statusCode": 200, "body": json.dumps({"type": 4, "data": {"content": content}})}


def work() -> None:
    assert PUBLIC_KEY.startswith("03a107bff3ce10be1d70dd18e74bc099")

    def ask(told, seal=None):
        event = request("POST", "/", body=json.dumps(told))
        sealed = ours.sign(f"1700000000{event['body']}".encode()).signature.hex()
        event["headers"]["x-signature-timestamp"] = "1700000000"
        event["headers"]["x-signature-ed25519"] = seal or sealed
        return handler(event, None)

    assert json.loads(ask({"type": 1})["body"]) == {"type": 1}
    assert (
        "hello wöol"
        in json.loads(ask({"type": 2, "data": {"name": "wöol"}})["body"])["data"]["content"]
    )
    assert ask({"type": 1}, "00" * 64)["statusCode"] == 401
