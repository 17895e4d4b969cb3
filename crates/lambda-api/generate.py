"""Writes src/model.json: the facts of AWS Lambda's API that this crate reads.

The source is the service model that botocore installs; `botocore` in the file names the version.
Facts alone are kept: names, methods, paths, statuses, where each input member travels, what its
value must satisfy, and the errors. To make it again, with the newest botocore:

    python -m venv /tmp/v && /tmp/v/bin/pip install botocore
    /tmp/v/bin/python crates/lambda-api/generate.py

then look at the difference, and make tests/requests.json again: tests/requests.py.
"""

import gzip
import json
from pathlib import Path

import botocore

KEPT = ("type", "min", "max", "pattern", "enum", "sensitive")


def service_model() -> dict:
    """The newest model of the service in the installed botocore."""
    [path] = Path(botocore.__file__).parent.glob("data/lambda/2015-03-31/service-2.json*")
    text = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text)


def input_shapes(shapes: dict, names: list[str]) -> dict:
    """The shapes of these names, and all that they are made of."""
    kept = {}

    def keep(name: str) -> str:
        if name in kept:
            return name
        shape = shapes[name]
        row = kept[name] = {key: shape[key] for key in KEPT if key in shape}
        if name == "Runtime":
            # The service checks it by itself, with another error, and a worker may run newer ones.
            del row["enum"]
        if shape["type"] == "structure":
            row["members"] = {
                member: [
                    keep(of["shape"]),
                    of.get("location", "body"),
                    of.get("locationName", member),
                ]
                for member, of in shape["members"].items()
            }
            row["required"] = shape.get("required", [])
            if "payload" in shape:
                row["payload"] = shape["payload"]
        elif shape["type"] == "list":
            row["of"] = keep(shape["member"]["shape"])
        elif shape["type"] == "map":
            row["key"], row["value"] = keep(shape["key"]["shape"]), keep(shape["value"]["shape"])
        return name

    for name in names:
        keep(name)
    return kept


def error(shape: dict) -> dict:
    """What the body of an error of this shape looks like."""
    [text] = (member for member in shape["members"] if member.lower() == "message")
    facts = shape["error"]
    sender = facts.get("senderFault", False)
    return {"status": facts["httpStatusCode"], "text": text, "sender": sender}


def lines(rows: dict) -> str:
    """JSON with one row a line, so that a new version of the model can be read as a difference."""
    row = json.dumps
    compact = {"separators": (",", ":")}
    body = ",\n".join(f"{row(name)}:{row(rows[name], **compact)}" for name in sorted(rows))
    return "{\n" + body + "\n}"


def main() -> None:
    model = service_model()
    operations = {
        name: {
            "method": one["http"]["method"],
            "path": one["http"]["requestUri"],
            "status": one["http"].get("responseCode", 200),
            "input": one["input"]["shape"],
        }
        for name, one in model["operations"].items()
    }
    shapes = input_shapes(model["shapes"], [one["input"] for one in operations.values()])
    errors = {
        name: error(shape)
        for name, shape in model["shapes"].items()
        if shape.get("exception") and "error" in shape
    }
    parts = {"operations": operations, "shapes": shapes, "errors": errors}
    text = ",\n".join(f"{json.dumps(name)}:{lines(rows)}" for name, rows in parts.items())
    path = Path(__file__).parent / "src/model.json"
    path.write_text(f'{{"botocore":{json.dumps(botocore.__version__)},\n{text}}}\n')


main()
