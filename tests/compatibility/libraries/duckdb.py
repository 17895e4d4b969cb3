# /// script
# dependencies = ["duckdb==2.0.1"]
# ///
# Sorts more than it likes to hold, with threads and files of its own.
import os
import tempfile

import duckdb


def work() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with duckdb.connect(os.path.join(directory, "farm.db")) as db:
            db.execute(
                "CREATE TABLE flock AS SELECT range AS id, range % 7 AS farm FROM range(200000)"
            )
            rows = db.sql("SELECT farm, sum(id) FROM flock GROUP BY farm ORDER BY farm").fetchall()
            assert rows[0] == (0, 2857157142) and len(rows) == 7, rows
            path = os.path.join(directory, "flock.parquet")
            db.execute(f"COPY flock TO '{path}' (FORMAT parquet)")
            assert db.execute(f"SELECT count(*) FROM '{path}' WHERE farm = 3").fetchone() == (
                28571,
            )
            top = db.execute("SELECT id FROM flock ORDER BY hash(id) DESC LIMIT 3").fetchall()
            assert len(top) == 3
            (limit,) = db.execute("SELECT current_setting('memory_limit')").fetchone()
            assert limit.endswith("iB"), limit
        with duckdb.connect(os.path.join(directory, "farm.db"), read_only=True) as db:
            assert db.execute("SELECT max(id) FROM flock").fetchone() == (199999,)
