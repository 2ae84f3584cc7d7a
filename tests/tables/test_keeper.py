"""A table and its topic, batch by batch."""

from pathlib import Path

from tests.pipeline.clusters import Cluster
from tests.tables.local import LocalRun, define, home_in, produce


def test_records_become_rows(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.new_topic(2)
    produce(cluster, topic, (b"a", {"id": 1, "item": {"name": "book", "price": 12}, "tags": ["x"]}), (b"b", {"id": 2}))
    produce(cluster, topic, (None, {"id": 3, "item": {"name": "pen"}}), (b"c", b"no json"), partition=1)
    run = LocalRun(home_in(tmp_path), define(cluster, topic))
    done = run.take()
    assert (done.rows, done.dead, set(done.new_columns)) == (3, 1, {"id", "item", "tags"})
    rows = run.rows()
    assert [(row["_key"], row["id"]) for row in rows] == [("a", 1), ("b", 2), (None, 3)]
    assert rows[0]["item"] == {"name": "book", "price": 12}
    assert rows[0]["tags"] == ["x"]
    (letter,) = run.dead()
    assert (letter["topic"], letter["partition"], letter["offset"], letter["value"]) == (topic, 1, 1, b"no json")
    assert "not JSON" in letter["error"]
