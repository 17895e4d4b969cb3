"""What to do about a result that is no JSON."""

_INSTEAD = {
    "Decimal": "float(x), or str(x) to keep every digit",
    "bytes": "x.decode() if it is text, else base64.b64encode(x).decode(); a handler with "
    "binary = true in [tool.lambswool] may return bytes as they are",
    "datetime": "x.isoformat()",
    "timedelta": "x.total_seconds()",
    "set": "list(x), or sorted(x)",
    "UUID": "str(x)",
    "Path": "str(x)",
    "ndarray": "x.tolist()",
    "DataFrame": 'x.to_dict(orient="records")',
    "Series": "x.tolist()",
    "generator": "list(x)",
    "async_generator": "[one async for one in x]",
    "coroutine": "await x",
    "complex": "[x.real, x.imag]",
}
_LIKE = {
    "bytearray": "bytes",
    "memoryview": "bytes",
    "date": "datetime",
    "time": "datetime",
    "Timestamp": "datetime",
    "Timedelta": "timedelta",
    "frozenset": "set",
    "dict_keys": "generator",
    "dict_values": "generator",
    "dict_items": "generator",
    "map": "generator",
    "filter": "generator",
    "zip": "generator",
    "range": "generator",
    "Index": "Series",
    "PosixPath": "Path",
    "Tensor": "ndarray",
}
# numpy's, by their names: bool_ (bool since numpy 2), int64, float32, …
_SCALARS = ("bool", "int", "uint", "float", "longlong", "ulonglong", "longdouble")


def hint(error: Exception) -> str:
    """Words to put behind the error's own; none where there is nothing to add."""
    words = str(error)
    if words.startswith("Out of range float values"):
        return "; JSON has no NaN and no infinity: return None, or a text, in its place"
    if words.startswith("keys must be"):
        return "; write {str(key): value for …}"
    if isinstance(error, RecursionError) or words.startswith("Circular reference"):
        return "; return plain values, nested less"
    head, _, rest = words.partition("Object of type ")
    name = rest.partition(" ")[0]
    if head or not name:
        return ""
    instead = _INSTEAD.get(_LIKE.get(name, name))
    if instead is None and name.rstrip("_0123456789") in _SCALARS:
        instead = "x.item(), or x.tolist() of a whole array"
    if instead is None:
        return "; return dicts, lists, texts, numbers, true, false and None"
    return f"; in place of such an x return {instead}"
