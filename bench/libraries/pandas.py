# /// script
# dependencies = ["pandas==3.1.1"]
# ///
import pandas as pd


def work() -> None:
    table = pd.DataFrame({"farm": ["a", "b", "a"], "sheep": [1, 2, 41]})
    assert table.groupby("farm")["sheep"].sum().to_dict() == {"a": 42, "b": 2}
