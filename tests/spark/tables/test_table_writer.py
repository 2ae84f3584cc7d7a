"""A table follows its topic, batch by batch, in every format."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ottla.spark.tables.description import describe
from ottla.spark.tables.failures import ConcurrentRunError, TableError, TransientTableError
from ottla.spark.tables.maintenance import MaintenancePolicy, compact, remove_orphans
from tests.spark.clusters import Cluster
from tests.spark.tables.local import LocalEngine, LocalRun, R, T, define, home_in, produce


def test_records_become_rows(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(2)
    produce(cluster, topic, (b"a", {"id": 1, "item": {"name": "book", "price": 12}, "tags": ["x"]}), (b"b", {"id": 2}))
    produce(cluster, topic, (None, {"id": 3, "item": {"name": "pen"}}), (b"c", b"no json"), partition=1)
    run = LocalRun(home_in(tmp_path), define(cluster, topic, format=format_))
    done = run.take()
    assert (done.rows, done.dead, set(done.new_columns)) == (3, 1, {"id", "item", "tags"})
    rows = run.rows()
    assert [(row["_key"], row["id"]) for row in rows] == [("a", 1), ("b", 2), (None, 3)]
    assert rows[0]["item"] == {"name": "book", "price": 12}
    assert rows[0]["tags"] == ["x"]
    (letter,) = run.dead()
    assert (letter["topic"], letter["partition"], letter["offset"], letter["value"]) == (topic, 1, 1, b"no json")
    assert "not JSON" in letter["error"]


def test_columns_follow_the_records(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    run = LocalRun(home_in(tmp_path), define(cluster, topic, format=format_))
    produce(cluster, topic, (b"a", {"n": 1, "o": {"x": 1}, "l": [{"p": 1}]}))
    run.take()
    produce(cluster, topic, (b"b", {"n": 2, "o": {"x": 2, "y": "new"}, "l": [{"p": 1, "q": True}], "more": None}))
    assert run.take().new_columns == ()
    produce(cluster, topic, (b"c", {"n": 2.5, "o": {"x": 3, "y": 4}}), (b"d", {"n": "three", "more": "now"}))
    done = run.take()
    assert (done.rows, done.dead, done.rescued, done.new_columns) == (2, 0, 2, ("more",))
    a, b, c, d = run.rows()
    assert (a["n"], b["n"], c["n"], d["n"]) == (1.0, 2.0, 2.5, None)
    assert (a["o"], b["o"], c["o"]) == ({"x": 1, "y": None}, {"x": 2, "y": "new"}, {"x": 3, "y": None})
    assert (a["l"], b["l"]) == ([{"p": 1, "q": None}], [{"p": 1, "q": True}])
    assert json.loads(c["_rescued"]) == {"o.y": 4}
    assert (json.loads(d["_rescued"]), d["more"]) == ({"n": "three"}, "now")


def test_upsert_keeps_the_last_row_of_each_key(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(2)
    run = LocalRun(home_in(tmp_path), define(cluster, topic, format=format_, mode="upsert"))
    produce(cluster, topic, (b"a", {"n": 1}), (b"b", {"n": 1}), (b"a", {"n": 2}), (b"c", {"n": 1}), (b"c", None))
    produce(cluster, topic, (b"z", {"n": 1}), (None, {"n": 9}), partition=1)
    run.take()
    assert [(row["_key"], row["n"]) for row in run.rows()] == [("b", 1), ("a", 2), ("z", 1)]
    (letter,) = run.dead()
    assert "no key" in letter["error"]
    produce(cluster, topic, (b"b", None), (b"a", {"n": 3}), (b"c", {"n": 4}), (b"unknown", None))
    run.take()
    assert [(row["_key"], row["n"]) for row in run.rows()] == [("a", 3), ("c", 4), ("z", 1)]


def test_the_mode_changes_without_a_new_table(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    run = LocalRun(home_in(tmp_path), define(cluster, topic, format=format_))
    produce(cluster, topic, (b"a", {"n": 1}), (b"b", {"n": 1}), (b"a", {"n": 2}), (b"b", None), (None, {"n": 7}))
    run.take()
    assert [row["_deleted"] for row in run.rows()] == [False, False, False, True, False]
    produce(cluster, topic, (b"c", {"n": 1}), (b"a", {"n": 3}))
    run = LocalRun(home_in(tmp_path), define(cluster, topic, format=format_, mode="upsert"))
    assert [(row["_key"], row["n"]) for row in run.rows()] == [("a", 2)]
    run.take()
    assert [(row["_key"], row["n"]) for row in run.rows()] == [("c", 1), ("a", 3)]
    run = LocalRun(home_in(tmp_path), define(cluster, topic, format=format_))
    produce(cluster, topic, (b"a", {"n": 4}))
    run.take()
    assert [(row["_key"], row["n"]) for row in run.rows()] == [("c", 1), ("a", 3), ("a", 4)]


def test_a_recreated_topic_stops_the_run(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    definition = define(cluster, topic, format=format_)
    run = LocalRun(home_in(tmp_path), definition)
    produce(cluster, topic, *((b"a", {"n": number}) for number in range(3)))
    run.take()
    for future in cluster.admin.delete_topics([topic]).values():
        future.result()
    cluster.create(topic, 1)
    produce(cluster, topic, *((b"b", {"n": number}) for number in range(5)))
    with pytest.raises(TableError, match=f"topic '{topic}' was recreated.*alter orders --accept-topic"):
        run.take()
    with pytest.raises(TableError, match="was recreated"):
        LocalRun(home_in(tmp_path), definition)
    assert len(run.rows()) == 3
    run.writer.accept_topic()
    run = LocalRun(home_in(tmp_path), definition)
    run.take()
    assert sorted((row["_key"], row["n"]) for row in run.rows()) == [
        *(("a", number) for number in range(3)),
        *(("b", number) for number in range(5)),
    ]
    with pytest.raises(TableError, match=r"has rows of 2 topics.*To start over"):
        LocalRun(home_in(tmp_path), define(cluster, topic, format=format_, mode="upsert"))


def test_a_second_run_writes_nothing_twice(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    definition = define(cluster, topic, format=format_)
    first, second = LocalRun(home_in(tmp_path), definition), LocalRun(home_in(tmp_path), definition)
    produce(cluster, topic, (b"a", {"n": 1}))
    first.take()
    second.take()  # skips what the first run has written since
    assert len(first.rows()) == 1
    produce(cluster, topic, (b"a", {"n": 2}))
    state, marks = second.writer.rows.state(), second.writer.look_up_topic()._replace(offsets={0: 2})
    first.take()
    with pytest.raises(ConcurrentRunError, match="another run committed"):
        second.writer.rows.commit(state, marks, [])
    assert [row["n"] for row in first.rows()] == [1, 2]


def test_a_concurrent_compaction_loses_nothing(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    definition = define(cluster, topic, format=format_, mode="upsert")
    run, other = LocalRun(home_in(tmp_path), definition), LocalRun(home_in(tmp_path), definition)
    for number in range(3):
        produce(cluster, topic, (b"%d" % number, {"n": number}))
        run.take()

    class CompactingEngine(LocalEngine):
        def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
            compact(other.writer, other.writer.rows, MaintenancePolicy(small_files=2))
            return super().map(work, items)

    run.writer.engine = CompactingEngine()
    produce(cluster, topic, (b"1", {"n": 10}), (b"2", None))
    with pytest.raises(TransientTableError, match="another program changed its files"):
        run.take()
    run = LocalRun(home_in(tmp_path), definition)
    run.take()
    assert [(row["_key"], row["n"]) for row in run.rows()] == [("0", 0), ("1", 10)]


def test_maintenance_compacts_files_and_expires_snapshots(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    run = LocalRun(home_in(tmp_path), define(cluster, topic, format=format_, partition_by=("bucket(2, _key)",)))
    for number in range(12):
        produce(cluster, topic, (b"%d" % (number % 4), {"n": number}))
        run.take()
    writer, rows = run.writer, run.rows()
    assert len(writer.rows.files()) == 12
    policy = MaintenancePolicy(small_files=3, keep_snapshots=1, snapshot_age_s=0.0)
    assert compact(writer, writer.rows, policy) == (12, 2)
    assert run.rows() == rows
    assert compact(writer, writer.rows, policy) == (0, 0)
    writer.rows.expire(1, 0.0)
    folder = Path(writer.rows.layout().folder.removeprefix("file://"))
    assert len([path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]) == 2
    assert run.rows() == rows
    produce(cluster, topic, (b"x", {"n": 99}))
    run.take()
    assert [row["n"] for row in run.rows()] == [*range(12), 99]
    orphan = folder / "orphan.parquet"
    orphan.write_bytes(b"left by a task that died")
    assert remove_orphans(writer.rows) == 0
    assert remove_orphans(writer.rows, age_s=-1.0) == 1
    assert not orphan.exists()
    assert len(run.rows()) == 13


def test_files_are_partitioned(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    layout = ("day(timestamp)", "country", "truncate(2, _key)", "month(at)", "hour(at)", "bucket(4, n)", "year(on)")
    columns = {"country": "string", "at": "timestamp", "n": "long", "on": "date"}
    definition = define(cluster, topic, format=format_, partition_by=layout, columns=columns, mode="upsert")
    run = LocalRun(home_in(tmp_path / "a folder"), definition)
    records = [
        (b"a1", {"country": "SE/ö", "at": "2026-11-15T10:11:12Z", "n": 1, "on": "2026-01-02"}),
        (b"a2", {"country": "SE/ö", "at": "1969-12-31T23:00:00+01:00", "n": 2, "on": "1960-01-02"}),
        (b"b1", {"country": None, "at": "never", "n": 3.5}),
        (b"b2", {"country": "a=b", "at": 1000, "n": 4}),
    ]
    produce(cluster, topic, *records)
    run.take()
    rows = run.rows()
    assert [row["_key"] for row in rows] == ["a1", "a2", "b1", "b2"]
    assert [row["country"] for row in rows] == ["SE/ö", "SE/ö", None, "a=b"]
    assert [row["n"] for row in rows] == [1, 2, None, 4]
    assert rows[1]["at"].isoformat() == "1969-12-31T22:00:00+00:00"
    assert rows[3]["at"].isoformat() == "1970-01-01T00:00:01+00:00"
    assert json.loads(rows[2]["_rescued"]) == {"at": "never", "n": 3.5}
    assert len(run.writer.rows.files()) == 4
    produce(cluster, topic, (b"a1", None), (b"b2", {"country": "SE/ö", "extra": 1}))
    run.take()
    expected = [("a2", None), ("b1", None), ("b2", 1)]
    assert [(row["_key"], row["extra"]) for row in run.rows()] == expected
    run.writer.rows.expire(1, 0.0)
    assert remove_orphans(run.writer.rows, age_s=-1.0) == 0
    assert [(row["_key"], row["extra"]) for row in run.rows()] == expected


def test_values_may_stay_bytes(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    definition = define(cluster, topic, format=format_, values="bytes", key="binary")
    run = LocalRun(home_in(tmp_path), definition)
    produce(cluster, topic, (b"\xff", b"no json"), (b"a", {"n": 1}), (None, b""), (b"\xff", None))
    done = run.take()
    assert (done.rows, done.dead, done.rescued, done.new_columns) == (4, 0, 0, ())
    assert [(row["_key"], row["value"], row["_deleted"]) for row in run.rows()] == [
        (b"\xff", b"no json", False),
        (b"a", b'{"n": 1}', False),
        (None, b"", False),
        (b"\xff", None, True),
    ]
    produce(cluster, topic, (b"a", b"\x00"), (b"b", None))
    assert run.take().rows == 2
    assert [row["value"] for row in run.rows()][4:] == [b"\x00", None]


def test_upsert_works_with_bytes(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    run = LocalRun(home_in(tmp_path), define(cluster, topic, format=format_, values="bytes", mode="upsert"))
    produce(cluster, topic, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"\xff", b"4"))
    assert run.take().dead == 1
    produce(cluster, topic, (b"b", None), (b"c", b"5"))
    run.take()
    assert [(row["_key"], row["value"]) for row in run.rows()] == [("a", b"3"), ("c", b"5")]
    (letter,) = run.dead()
    assert (letter["key"], letter["value"]) == (b"\xff", b"4")


def test_control_and_aborted_records_are_not_lag(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    topic = cluster.new_topic(1)
    definition = define(cluster, topic, format=format_)
    run = LocalRun(home_in(tmp_path), definition)
    cluster.transact(topic, [(True, [b'{"n": 1}']), (False, [b'{"n": 2}'])])
    assert run.take().rows == 1
    assert describe(home_in(tmp_path), definition)["lag"] == 0
    cluster.transact(topic, [(False, [b'{"n": 3}'])])
    assert run.take().rows == 0
    assert describe(home_in(tmp_path), definition)["lag"] == 0
    assert [row["n"] for row in run.rows()] == [1]
