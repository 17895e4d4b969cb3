# /// script
# dependencies = ["pandas==3.1.1", "plotly==7.1.0"]
# ///
# A report: a table, summed up, as a page with a figure.
import io

import pandas as pd
import plotly.express as px


def handler(event, context):
    table = pd.read_csv(io.StringIO(event["csv"]), parse_dates=["day"])
    sums = table.groupby(table["day"].dt.strftime("%Y-%m"))["value"].sum().reset_index()
    figure = px.bar(sums, x="day", y="value", title="Wölle")
    page = figure.to_html(include_plotlyjs=False, full_html=True)
    return {"statusCode": 200, "headers": {"Content-Type": "text/html"}, "body": page}


def work() -> None:
    csv = "day,value\n" + "".join(f"2026-{1 + n % 3:02}-01,{n}\n" for n in range(300))
    answer = handler({"csv": csv}, None)
    assert "2026-02" in answer["body"]
    assert "W\\u00f6lle" in answer["body"] or "Wölle" in answer["body"]
    figure = px.line(pd.DataFrame({"x": [1, 2], "y": [3, 4]}), x="x", y="y")
    assert '"mode":"lines"' in figure.to_json()
