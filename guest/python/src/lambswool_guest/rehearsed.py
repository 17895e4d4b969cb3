"""The handler that a spare rehearses with: see `rehearsal`."""


def handler(event: object, context: object) -> object:
    """What came in."""
    return event
