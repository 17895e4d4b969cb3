"""What a function returned that yields its answer in parts: a generator, or an async one.

Each part is sent as it comes, bytes as they are and text as UTF-8.
"""

from lambswool_guest import handler, loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

TYPE = "application/octet-stream"

_GENERATOR = type(_ for _ in ())


async def _none() -> "AsyncGenerator":
    yield


_ASYNC = type(_none())


def is_one(result: object) -> bool:
    """Whether this yields parts."""
    return isinstance(result, (_GENERATOR, _ASYNC))


def send(result: "Generator | AsyncGenerator", part: "Callable[[bytes], None]") -> None:
    """Has it yield all of its parts. Raises what it raises, or `handler.Refused`."""
    if isinstance(result, _ASYNC):
        loop.Loop().run(_drive(result, part))
        return
    try:
        for one in result:  # type: ignore[union-attr]
            part(_bytes(one))
    finally:
        result.close()  # type: ignore[union-attr]


async def _drive(result: "AsyncGenerator", part: "Callable[[bytes], None]") -> None:
    try:
        async for one in result:
            part(_bytes(one))
    finally:
        await result.aclose()


def _bytes(part: object) -> bytes:
    if isinstance(part, str):
        return part.encode("utf-8", "backslashreplace")
    if isinstance(part, (bytes, bytearray, memoryview)):
        return bytes(part)
    kind = type(part).__name__
    words = f"Unable to marshal response: a part of a stream is bytes or text, and not {kind}"
    raise handler.Refused("Runtime.MarshalError", words)
