# /// script
# dependencies = ["orjson==3.13.0", "numpy"]
# ///
# Writes and reads JSON, with dates, arrays and what is no JSON.
import datetime
import uuid

import numpy as np
import orjson


def work() -> None:
    told = {"n": 1, "t": datetime.datetime(2026, 1, 2), "u": uuid.UUID(int=7), "ö": [None, True]}
    text = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
    uid = "00000000-0000-0000-0000-000000000007"
    wanted = '{"n":1,"t":"2026-01-02T00:00:00","u":"' + uid + '","ö":[null,true]}'
    assert text == wanted.encode()
    assert orjson.loads(text)["ö"] == [None, True]
    array = orjson.dumps(np.arange(4).reshape(2, 2), option=orjson.OPT_SERIALIZE_NUMPY)
    assert array == b"[[0,1],[2,3]]"
    large = list(range(100_000))
    assert orjson.loads(orjson.dumps(large)) == large
    for wrong in (b'{"a": NaN}', b'"\xff"', b"[1,]"):
        try:
            orjson.loads(wrong)
        except orjson.JSONDecodeError:
            continue
        raise AssertionError(wrong)
