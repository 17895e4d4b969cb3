# /// script
# dependencies = ["chalice==1.34.0", "setuptools<81"]
# ///
# Chalice's quickstart: its application is the handler.
from chalice import BadRequestError, Chalice
from chalice.test import Client

app = Chalice(app_name="helloworld")
CITIES = {"seattle": "WA", "portland": "OR"}


@app.route("/")
def index():
    return {"hello": "world"}


@app.route("/cities/{city}")
def state_of_city(city):
    if city not in CITIES:
        raise BadRequestError(f"Unknown city '{city}'")
    return {"state": CITIES[city]}


@app.route("/objects/{key}", methods=["PUT"])
def put(key):
    return {key: app.current_request.json_body}


handler = app


def work() -> None:
    with Client(app) as client:
        assert client.http.get("/").json_body == {"hello": "world"}
        assert client.http.get("/cities/seattle").json_body == {"state": "WA"}
        assert client.http.get("/cities/rome").status_code == 400
        headers = {"Content-Type": "application/json"}
        put = client.http.put("/objects/ö", headers=headers, body=b'{"a": [1]}')
        assert put.json_body == {"ö": {"a": [1]}}, put.body
