# /// script
# dependencies = ["requests==2.34.2"]
# ///
import requests


def work() -> None:
    request = requests.Request("GET", "http://localhost/flock", params={"size": 42})
    assert requests.Session().prepare_request(request).url == "http://localhost/flock?size=42"
