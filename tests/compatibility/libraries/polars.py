# /// script
# dependencies = ["polars==2.1.0"]
# ///
# Groups, joins and windows in the library's own threads, eagerly and lazily, with files.
# machines: Function not implemented
import io
import os
import tempfile

import polars as pl


def work() -> None:
    frame = pl.DataFrame({"farm": ["a", "b"] * 5000, "sheep": range(10_000)})
    sums = frame.group_by("farm").agg(pl.col("sheep").sum()).sort("farm")
    assert sums.rows() == [("a", 24995000), ("b", 25000000)]
    lazy = frame.lazy().filter(pl.col("sheep") % 3 == 0).join(sums.lazy(), on="farm")
    assert lazy.select(pl.len()).collect().item() == 3334
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "flock.parquet")
        frame.write_parquet(path)
        assert pl.read_parquet(path).equals(frame)
        found = pl.scan_parquet(path).filter(pl.col("farm") == "b").select(pl.col("sheep").max())
        assert found.collect().item() == 9999
    read = pl.read_csv(io.StringIO("day,name\n2026-01-02,ö\n2026-02-03,ü\n"), try_parse_dates=True)
    assert read.select(pl.col("day").dt.month().sum()).item() == 3
    assert pl.SQLContext(t=frame).execute("SELECT count(*) FROM t", eager=True).item() == 10_000
    assert pl.thread_pool_size() >= 1
