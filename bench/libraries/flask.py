# /// script
# dependencies = ["flask==3.1.3"]
# ///
from flask import Flask, jsonify


def work() -> None:
    app = Flask("bench", root_path="/")
    app.add_url_rule(
        "/add/<int:left>/<int:right>", "add", lambda left, right: jsonify(left + right)
    )
    answer = app.test_client().get("/add/19/23")
    assert answer.status_code == 200 and answer.json == 42, answer.data
