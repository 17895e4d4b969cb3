# /// script
# dependencies = ["pyarrow==26.0.1"]
# ///
# Computes on columns with a pool of threads, writes and reads Parquet, compressed, and streams.
import os
import tempfile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq


def work() -> None:
    assert 1 <= pa.cpu_count() <= 4096 and pa.io_thread_count() >= 1
    table = pa.table({"farm": ["a", "b", None] * 20_000, "sheep": list(range(60_000))})
    sums = table.group_by("farm").aggregate([("sheep", "sum")]).to_pydict()
    assert sorted(sums["sheep_sum"]) == [599970000, 599990000, 600010000], sums
    assert pc.sum(pc.multiply(table["sheep"], 2)).as_py() == 3599940000
    with tempfile.TemporaryDirectory() as directory:
        for codec in ("snappy", "zstd", "gzip", "lz4", "brotli"):
            path = os.path.join(directory, codec)
            pq.write_table(table, path, compression=codec, row_group_size=10_000)
            assert pq.read_table(path, memory_map=codec == "zstd").equals(table)
        data = pa.dataset.dataset(directory, format="parquet")
        assert data.count_rows() == 300_000
        only = data.to_table(filter=pa.dataset.field("sheep") < 3, columns=["sheep"])
        assert only.num_rows == 15
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().equals(table)
    read = pa.csv.read_csv(pa.py_buffer("a,b\n1,ö\n2,ü\n".encode()))
    assert read.to_pylist() == [{"a": 1, "b": "ö"}, {"a": 2, "b": "ü"}]
    days = pa.array([0], pa.timestamp("s", tz="UTC"))
    local = pc.hour(pc.cast(days, pa.timestamp("s", tz="Asia/Tokyo")))
    assert local.to_pylist() == [9], local
