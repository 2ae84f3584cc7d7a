"""Other programs read the tables without Ottla: PyIceberg, deltalake and DuckDB. For Spark see test_spark.

DuckDB's extensions for Iceberg and Delta would have to be downloaded. So it reads Arrow data from PyIceberg and
deltalake, and Parquet files directly.
"""

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.spark.clusters import Cluster
from tests.spark.tables.local import LocalRun, define, home_in, produce

QUERY = "SELECT count(*), sum(n), count(new), sum(o.x), count(o.y) FROM orders"
EXPECTED = (4, 10.5, 1, 10, 1)


@pytest.fixture
def filled(cluster: Cluster, tmp_path: Path, format_: str) -> LocalRun:
    """A table whose columns were added later and changed their types."""
    topic = cluster.new_topic(1)
    layout = ("day(timestamp)", "bucket(2, _key)")
    run = LocalRun(home_in(tmp_path), define(cluster, topic, format=format_, partition_by=layout, mode="upsert"))
    produce(cluster, topic, *((b"%d" % n, {"n": n, "o": {"x": n}}) for n in range(4)), (b"gone", {"n": 7}), (b"", b"x"))
    run.take()
    produce(cluster, topic, (b"3", {"n": 7.5, "o": {"x": 7, "y": "z"}, "new": "column"}), (b"gone", None))
    run.take()
    return run


def test_other_programs_read_a_table(filled: LocalRun, tmp_path: Path, format_: str) -> None:
    home = tmp_path / "home"
    with duckdb.connect() as connection:
        if format_ == "iceberg":
            catalog = load_catalog("ottla", type="sql", uri=f"sqlite:///{home / 'catalog.db'}")
            table = catalog.load_table("default.orders")
            assert table.scan(row_filter="_key == '3'").to_arrow().column("new").to_pylist() == ["column"]
            assert table.scan(row_filter="n > 7").to_arrow().num_rows == 1
            connection.register("orders", table.scan().to_arrow())
            letters = catalog.load_table("default.orders_dead_letters").scan().to_arrow()
        elif format_ == "delta":
            connection.register("orders", DeltaTable(home / "warehouse" / "orders").to_pyarrow_dataset())
            letters = DeltaTable(home / "warehouse" / "orders_dead_letters").to_pyarrow_table()
        else:
            manifest = home / "warehouse" / "orders" / "_symlink_format_manifest" / "manifest"
            connection.execute(
                f"SET VARIABLE files = (SELECT list(column0) FROM read_csv('{manifest}', header=false, delim='\t'))"
            )
            connection.execute(
                "CREATE VIEW orders AS SELECT * FROM read_parquet(getvariable('files'), union_by_name=true)"
            )
            files = home / "warehouse" / "orders_dead_letters" / "data" / "*.parquet"
            letters = connection.sql(f"SELECT * FROM read_parquet('{files}')").to_arrow_table()
        assert connection.execute(QUERY).fetchone() == EXPECTED
    assert letters.select(["partition", "offset", "value"]).to_pylist() == [
        {"partition": 0, "offset": 5, "value": b"x"}
    ]


def test_readers_do_not_need_ottla(cluster: Cluster, tmp_path: Path) -> None:
    """A process that cannot import the package reads the same rows."""
    topic = cluster.new_topic(1)
    produce(cluster, topic, (b"a", {"n": 1}), (b"b", {"n": 2}))
    LocalRun(home_in(tmp_path), define(cluster, topic)).take()
    program = (
        "import sys; sys.modules['ottla'] = None\n"
        "from pyiceberg.catalog import load_catalog\n"
        f"catalog = load_catalog('ottla', type='sql', uri='sqlite:///{tmp_path}/home/catalog.db')\n"
        "print(catalog.load_table('default.orders').scan().to_arrow().num_rows)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "2\n"


def test_commits_store_the_source_of_their_rows(filled: LocalRun, tmp_path: Path, format_: str) -> None:
    marks = filled.writer.rows.state().marks
    assert marks is not None
    assert marks.offsets == {0: 8}
    assert (marks.cluster, marks.topic_id) == (
        filled.writer.look_up_topic().cluster,
        filled.writer.look_up_topic().topic_id,
    )
    if format_ == "delta":
        table = DeltaTable(tmp_path / "home" / "warehouse" / "orders")
        assert table.transaction_version(f"ottla/{marks.cluster}/{marks.topic_id}/0") == 8


def test_a_run_continues_from_a_rollback(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.new_topic(1)
    definition = define(cluster, topic)
    run = LocalRun(home_in(tmp_path), definition)
    produce(cluster, topic, (b"a", {"n": 1}))
    run.take()
    catalog = load_catalog("ottla", type="sql", uri=f"sqlite:///{tmp_path / 'home' / 'catalog.db'}")
    table = catalog.load_table("default.orders")
    before = table.current_snapshot()
    assert before is not None
    produce(cluster, topic, (b"b", {"n": 2}))
    run.take()
    table.refresh()
    table.manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    produce(cluster, topic, (b"c", {"n": 3}))
    with pytest.raises(Exception, match="table 'orders' was rolled back during this run"):
        run.take()
    run = LocalRun(home_in(tmp_path), definition)
    run.take()
    assert [row["n"] for row in run.rows()] == [1, 2, 3]
