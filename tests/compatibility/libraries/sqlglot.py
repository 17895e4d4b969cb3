# /// script
# dependencies = ["sqlglot==30.30.0"]
# ///
# Translates and rewrites queries, and runs one.
import sqlglot
from sqlglot import exp
from sqlglot.executor import execute
from sqlglot.optimizer import optimize


def work() -> None:
    query = "SELECT EPOCH_MS(1618088028295)"
    assert sqlglot.transpile("SELECT TOP 3 a FROM t", read="tsql", write="postgres") == [
        "SELECT a FROM t LIMIT 3"
    ]
    assert "FROM_UNIXTIME" in sqlglot.transpile(query, read="duckdb", write="hive")[0]
    tree = sqlglot.parse_one("SELECT a, b + 1 AS c FROM flock WHERE x = 1 AND x = 1")
    assert {column.name for column in tree.find_all(exp.Column)} == {"a", "b", "x"}
    better = optimize(tree, schema={"flock": {"a": "int", "b": "int", "x": "int"}})
    assert better.sql().count('"x"') == 1, better.sql()
    flock = [{"farm": "a", "n": 1}, {"farm": "b", "n": 2}, {"farm": "a", "n": 41}]
    rows = execute(
        "SELECT farm, SUM(n) AS n FROM flock GROUP BY farm", tables={"flock": flock}
    ).rows
    assert sorted(rows) == [("a", 42), ("b", 2)]
