# /// script
# dependencies = ["msgpack==1.2.4", "zstandard==0.25.0"]
# ///
# Packs, streams and compresses, with a compressor's own threads.
import datetime
import io

import msgpack
import zstandard


def work() -> None:
    told = {"n": [1, -(2**40), 1.5], "b": b"\x00", "ö": None}
    packed = msgpack.packb(told)
    assert msgpack.unpackb(packed) == told
    when = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert msgpack.unpackb(msgpack.packb(when, datetime=True), timestamp=3) == when
    stream = msgpack.Unpacker()
    for part in (packed[:5], packed[5:], packed):
        stream.feed(part)
    assert list(stream) == [told, told]
    data = b"".join(b"sheep %d\n" % n for n in range(200_000))
    small = zstandard.ZstdCompressor(level=3, threads=2).compress(data)
    assert len(small) < len(data) / 3 and zstandard.ZstdDecompressor().decompress(small) == data
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(small))
    assert reader.read(8) == data[:8]
    words = zstandard.train_dictionary(2048, [b"sheep %d of the hill" % n for n in range(2000)])
    assert len(words.as_bytes()) <= 2048
