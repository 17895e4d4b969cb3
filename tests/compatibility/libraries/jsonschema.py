# /// script
# dependencies = ["jsonschema[format]==4.26.0"]
# ///
# Checks documents, with formats and references, through a library in Rust.
from jsonschema import Draft202012Validator, FormatChecker


def work() -> None:
    schema = {
        "$defs": {"age": {"type": "integer", "minimum": 0}},
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^D"},
            "age": {"$ref": "#/$defs/age"},
            "mail": {"type": "string", "format": "email"},
        },
        "required": ["name"],
    }
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema, format_checker=FormatChecker())
    assert validator.is_valid({"name": "Dölly", "age": 3, "mail": "d@farm"})
    errors = sorted(
        validator.iter_errors({"age": -1, "mail": "none"}), key=lambda error: error.json_path
    )
    assert [error.json_path for error in errors] == ["$", "$.age", "$.mail"]
