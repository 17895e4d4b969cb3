# /// script
# dependencies = ["sqlalchemy==2.1.9"]
# ///
from sqlalchemy import column, create_engine, select, table


def work() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        connection.exec_driver_sql("create table flock (size integer)")
        connection.exec_driver_sql("insert into flock values (1), (41)")
        sizes = connection.execute(select(column("size")).select_from(table("flock"))).scalars()
        assert sum(sizes) == 42
