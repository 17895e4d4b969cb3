# /// script
# dependencies = ["gunicorn==27.0.1"]
# ///
from gunicorn.config import Config
from gunicorn.http import RequestParser


def work() -> None:
    text = [b"GET /flock?size=3 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"]
    request = next(RequestParser(Config(), iter(text), ("127.0.0.1", 1)))
    assert (request.method, request.path, request.query) == ("GET", "/flock", "size=3")
