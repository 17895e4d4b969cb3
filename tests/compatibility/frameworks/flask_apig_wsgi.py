# /// script
# dependencies = ["flask==3.1.3", "apig-wsgi==2.20.0"]
# ///
# Flask's quickstart, with a template and a session, behind apig-wsgi as that documents it.
from apig_wsgi import make_lambda_handler
from flask import Flask, render_template_string, session
from flask import request as asked
from markupsafe import escape
from request import request

app = Flask(__name__)
app.secret_key = b'_5#y2L"F4Q8z\n\xec]/'


@app.route("/")
def hello_world():
    session["seen"] = True
    return "<p>Hello, World!</p>"


@app.route("/<name>")
def hello(name):
    return f"Hello, {escape(name)}!"


@app.post("/table")
def table():
    text = "{% for each in items %}<li>{{ each }}</li>{% endfor %}"
    return render_template_string(text, items=asked.json["items"])


handler = make_lambda_handler(app.wsgi_app)


def work() -> None:
    root = handler(request("GET", "/"), None)
    assert root["statusCode"] == 200 and root["body"] == "<p>Hello, World!</p>", root
    assert root["cookies"][0].startswith("session="), root
    assert handler(request("GET", "/d%C3%B6lly"), None)["body"] == "Hello, dölly!"
    made = handler(request("POST", "/table", body='{"items": ["<a>", 2]}'), None)
    assert made["body"] == "<li>&lt;a&gt;</li><li>2</li>", made
