# /// script
# dependencies = ["psycopg2-binary==2.9.13"]
# ///
from psycopg2.extensions import adapt


def work() -> None:
    assert adapt([1, 2, 39]).getquoted() == b"ARRAY[1,2,39]"
