"""Writes requests.json: a request for each operation, as botocore itself sends it.

Each has every member of the operation's input, with values that satisfy the service model. The
client serialises it in full; a hook takes it before it is sent. Beside each request stand the
members that were given, which the test of this crate must read from it. To make it again, see
generate.py; then

    /tmp/v/bin/python crates/lambda-api/tests/requests.py
"""

import base64
import datetime
import json
import random
import re
from pathlib import Path
from re import _parser as parser
from urllib.parse import urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config

RANDOM = random.Random(91)
TIME = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


class Taken(Exception):
    """Raised by the hook, so that nothing is sent."""


def text_of(pattern: str, more: int) -> str:
    """A text that fits this pattern, but for what it looks ahead or back at.

    What may be repeated is repeated up to `more` times more than it must.
    """

    def of(tokens: list) -> str:
        return "".join(one(*token) for token in tokens)

    def one(kind: object, value: object) -> str:
        match str(kind):
            case "LITERAL":
                return chr(value)
            case "IN" if str(value[0][0]) == "NEGATE":
                return "n"
            case "IN":
                return one(*RANDOM.choice(value))
            case "RANGE":
                return chr(RANDOM.randint(*value))
            case "CATEGORY":
                return "7"
            case "ANY":
                return RANDOM.choice("any: /.")
            case "NOT_LITERAL":
                return "n"
            case "BRANCH":
                return of(RANDOM.choice(value[1]))
            case "SUBPATTERN":
                return of(value[3])
            case "MAX_REPEAT":
                least, most, repeated = value
                most = min(most, max(least, 1) + more)
                return "".join(of(repeated) for _ in range(RANDOM.randint(least, most)))
            case "AT" | "ASSERT" | "ASSERT_NOT":
                return ""
        raise ValueError(kind)

    return of(parser.parse(pattern).data)


def string(shape: dict) -> str:
    """A text that satisfies the constraints of a shape."""
    if "enum" in shape:
        return RANDOM.choice(shape["enum"])
    least, most = shape.get("min", 0), shape.get("max", 40)
    if "pattern" not in shape:
        return "é & 'x' /?"[: max(least, min(most, 10))].ljust(least, "x")
    pattern = shape["pattern"].replace(r"\p{L}\p{Z}\p{N}", "a-zé 0-9")
    for tried in range(10_000):
        value = text_of(pattern, 2 + tried // 100)
        if max(least, 1) <= len(value) <= min(most, 200) and re.fullmatch(pattern, value):
            return value
    raise ValueError(pattern)


def sample(shapes: dict, name: str) -> object:
    """A value of this shape."""
    shape = shapes[name]
    match shape["type"]:
        case "structure":
            return {member: sample(shapes, of[0]) for member, of in shape["members"].items()}
        case "list":
            count = max(shape.get("min", 0), min(shape.get("max", 2), 2))
            return [sample(shapes, shape["of"]) for _ in range(count)]
        case "map":
            return {sample(shapes, shape["key"]): sample(shapes, shape["value"])}
        case "string":
            return string(shape)
        case "integer" | "long":
            return RANDOM.choice([shape.get("min", 1), shape.get("max", 2_000_000_000)])
        case "double":
            return shape.get("max", 8) * 0.75
        case "boolean":
            return RANDOM.choice([True, False])
        case "timestamp":
            return TIME
        case "blob":
            return RANDOM.randbytes(5)
    raise ValueError(shape)


def read(value: object, place: str) -> object:
    """What this crate reads where `value` was sent."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime():
            return "2026-01-02T03:04:05Z" if place == "querystring" else int(value.timestamp())
        case dict():
            return {key: read(one, place) for key, one in value.items()}
        case list():
            return [read(one, place) for one in value]
    return value


def requests(model: dict) -> list[dict]:
    """The rows of the file."""
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    config = Config(signature_version=UNSIGNED)
    session = botocore.session.get_session()
    client = session.create_client("lambda", "us-east-1", config=config, **keys)
    taken = []

    def take(request: object, **_: object) -> None:
        taken.append(request)
        raise Taken

    client.meta.events.register("before-send.lambda", take)
    methods = {
        client.meta.method_to_api_mapping[name]: name
        for name in dir(client)
        if name in client.meta.method_to_api_mapping
    }
    rows = []
    for name, operation in model["operations"].items():
        shape = model["shapes"][operation["input"]]
        members = sample(model["shapes"], operation["input"])
        try:
            getattr(client, methods[name])(**members)
        except Taken:
            pass
        request, url = taken[-1], urlsplit(taken[-1].url)
        payload = shape.get("payload")
        blob = payload is not None and isinstance(members[payload], bytes)
        body = (request.body or b"") if not hasattr(request.body, "read") else request.body.read()
        headers = request.headers.items()
        row = {
            "operation": name,
            "method": request.method,
            "path": url.path,
            "query": url.query,
            "headers": {
                key: value if isinstance(value, str) else value.decode()
                for key, value in headers
                if key.lower().startswith("x-amz-")
            },
            "members": {
                member: read(value, shape["members"][member][1])
                for member, value in members.items()
                if not (blob and member == payload)
            },
        }
        if blob:
            row["payload"] = base64.b64encode(body).decode()
            assert body == members[payload]
        else:
            row["body"] = body.decode()
        rows.append(row)
    return rows


def main() -> None:
    here = Path(__file__).parent
    model = json.loads((here.parent / "src/model.json").read_text())
    rows = (json.dumps(row, ensure_ascii=False) for row in requests(model))
    (here / "requests.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")


main()
