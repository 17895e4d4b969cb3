# /// script
# dependencies = ["urllib3==2.8.0"]
# ///
# Builds requests and decodes replies, compressed ones too, without a server.
import gzip
import io

import urllib3
from urllib3.filepost import encode_multipart_formdata
from urllib3.util import Retry, parse_url


def work() -> None:
    url = parse_url("https://user@example.org:8443/flock/%7eone?size=3#end")
    assert (url.host, url.port, url.path, url.query) == (
        "example.org",
        8443,
        "/flock/%7Eone",
        "size=3",
    )
    body = gzip.compress("wölle".encode() * 1000)
    reply = urllib3.HTTPResponse(
        io.BytesIO(body), headers={"content-encoding": "gzip"}, preload_content=False
    )
    assert reply.read().decode() == "wölle" * 1000
    parts, kind = encode_multipart_formdata({"name": "wool", "file": ("a.txt", b"abc")}, "edge")
    assert kind == "multipart/form-data; boundary=edge" and parts.count(b"--edge") == 3
    retry = Retry(total=2, backoff_factor=0.5).increment("GET", "/", error=TimeoutError("late"))
    assert retry.total == 1 and len(retry.history) == 1
    with urllib3.PoolManager(num_pools=2) as pools:
        try:
            pools.request("GET", "http://127.0.0.1:9/", retries=False, timeout=2)
        except urllib3.exceptions.HTTPError as error:
            assert "127.0.0.1" in str(error) or "port=9" in str(error), error
        else:
            raise AssertionError("nothing listens there")
