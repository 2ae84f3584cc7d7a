"""`ottla table`, as people type it; all but `run`, which needs Spark."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.spark.tables.definition import TableHome
from tests.spark.clusters import Cluster
from tests.spark.tables.local import LocalRun, produce
from tests.support.commands import run_command, run_failing_command

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Typed:
    """Return a function that runs `ottla table` in this process and returns its exit code, output and errors."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", cluster.address)
    monkeypatch.setenv("OTTLA_TABLES", str(tmp_path))

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["table", *words])
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def test_the_life_of_a_table(cluster: Cluster, tmp_path: Path, typed: Typed) -> None:
    topic = cluster.new_topic(2)

    def run_command(*words: str) -> str:
        code, out, err = typed(*words)
        assert (code, err) == (0, "")
        return out

    assert run_command("list") == "There are no tables.\n"
    output = run_command("create", "orders", "--topic", topic, "--partition-by", "day(timestamp)")
    assert output.startswith(f"Created table orders: iceberg, append, from topic {topic}.\n")
    assert run_command("list").splitlines()[1].split() == [
        "orders",
        topic,
        "iceberg",
        "append",
        "no",
    ]
    produce(cluster, topic, (b"a", {"n": 1}), (b"b", b"bad"))
    LocalRun(TableHome(tmp_path), TableHome(tmp_path).load("orders")).take()
    produce(cluster, topic, (b"a", {"n": 2}))
    (shown,) = json.loads(run_command("describe", "orders", "--json"))
    assert (shown["rows"], shown["files"], shown["dead_letters"], shown["lag"]) == (1, 1, 1, 1)
    assert shown["offsets"] == {"0": 2, "1": 0}
    assert shown["columns"]["n"] == "int64"
    text = run_command("describe", "orders")
    assert "1 record behind; not running" in text
    assert "partitioned by day(_timestamp)" in text
    assert run_command("alter", "orders", "--mode", "upsert") == (
        "Table orders uses mode upsert from the next run on.\n"
    )
    assert TableHome(tmp_path).load("orders").mode == "upsert"
    assert "with its files" in run_command("drop", "orders")
    assert not list(tmp_path.rglob("*.parquet"))
    assert run_command("list") == "There are no tables.\n"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["create", "or-ders", "--topic", "x"], "'or-ders' is not a valid table name"),
        (["create", "orders", "--topic", "no-such-topic"], "topic 'no-such-topic' does not exist"),
        (["create", "orders", "--topic", "x", "--partition-by", "week(timestamp)"], "there is no transform 'week'"),
        (["create", "orders", "--topic", "x", "--partition-by", "day(country)"], "declare it by --column country=TYPE"),
        (["create", "orders", "--topic", "x", "--partition-by", "bucket(_key)"], "is not valid; use identity(column)"),
        (
            ["create", "orders", "--topic", "x", "--partition-by", "hour(_key)"],
            "hour does not accept a column of type",
        ),
        (["create", "orders", "--topic", "x", "--column", "n=number"], "there is no type 'number'; use one of boolean"),
        (["create", "orders", "--topic", "x", "--column", "_offset=long"], "the name is reserved"),
        (["create", "orders", "--topic", "x", "--values", "bytes", "--column", "n=long"], "have no columns to declare"),
        (
            ["create", "orders", "--topic", "x", "--format", "delta", "--catalog", "type=rest"],
            "only Iceberg tables have a catalog",
        ),
        (["create", "orders", "--topic", "x", "--client", "fetch.mni.bytes=1"], "kafka.fetch.mni.bytes"),
        (["create", "orders", "--topic", "x", "--catalog", "type=nothing"], "cannot open the Iceberg catalog"),
        (["run", "orders"], "there is no table 'orders' in"),
        (["run"], "create one with `ottla table create`"),
        (["describe", "orders"], "there is no table 'orders' in"),
        (["alter", "orders"], "there is nothing to change"),
        (["drop", "orders"], "there is no table 'orders' in"),
    ],
)
def test_bad_input_is_reported_in_one_line(tmp_path: Path, typed: Typed, words: list[str], answer: str) -> None:
    code, _, errors = typed(*words)
    assert code == 1
    assert answer in errors
    assert errors.count("\n") == 1
    assert TableHome(tmp_path).names() == []


def test_one_run_at_a_time(cluster: Cluster, tmp_path: Path, typed: Typed) -> None:
    assert typed("create", "orders", "--topic", cluster.new_topic(1))[0] == 0
    with TableHome(tmp_path).lock("orders"):
        for words in (["run", "orders", "--once"], ["alter", "orders", "--mode", "upsert"], ["drop", "orders"]):
            code, _, errors = typed(*words)
            assert (code, "is in use by process" in errors) == (1, True)
        assert typed("list")[1].splitlines()[1].split()[-1] == "yes"


def test_a_table_is_described_without_its_cluster(cluster: Cluster, tmp_path: Path, typed: Typed) -> None:
    assert typed("create", "orders", "--topic", cluster.new_topic(1))[0] == 0
    TableHome(tmp_path).change("orders", servers="127.0.0.1:1")
    code, out, _ = typed("describe", "orders")
    assert code == 0
    assert "127.0.0.1:1 cannot be reached" in out
    assert "0 rows" in out


def test_the_command_does_the_same_as_a_process(cluster: Cluster, tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    assert run_command("table", "list", *home, server=cluster.address) == "There are no tables.\n"
    assert "does not exist" in run_failing_command(
        "table", "create", "orders", "--topic", "none", *home, server=cluster.address
    )
