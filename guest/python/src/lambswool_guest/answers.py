"""What a handler returned whose answers need not be JSON."""

from lambswool_guest import handler

BYTES = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"


def binary(result: object) -> tuple[bytes, str]:
    """The bytes of it, and their content type. Raises `handler.Refused`."""
    content_type = None
    if isinstance(result, tuple) and len(result) == 2:
        data, said = result
        if isinstance(data, (bytes, bytearray, memoryview, str)) and isinstance(said, str):
            result, content_type = data, said
            if not said or not said.isascii() or not said.isprintable() or len(said) > 256:
                text = f"Unable to marshal response: {said[:256]!r} is no content type"
                raise handler.Refused("Runtime.MarshalError", text)
    if isinstance(result, str):
        return result.encode("utf-8", "backslashreplace"), content_type or TEXT
    if isinstance(result, (bytes, bytearray, memoryview)):
        return bytes(result), content_type or BYTES
    return handler.as_json(result), handler.JSON
