"""The handler that a spare rehearses with: see `instance._rehearse`."""


def handler(event: object, context: object) -> object:
    """What came in."""
    return event
