# /// script
# dependencies = ["jinja2==3.1.6"]
# ///
from jinja2 import Environment


def work() -> None:
    template = Environment().from_string("{% for n in flock %}{{ n * 2 }},{% endfor %}")
    assert template.render(flock=[1, 2, 3]) == "2,4,6,"
