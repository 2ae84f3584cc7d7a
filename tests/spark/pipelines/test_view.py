"""The command line shows runs from their events."""

from pathlib import Path

import pytest

from ottla.cli.pipeline_view import View, gather
from ottla.spark.pipelines.events import Event, EventLog, make_event, read_events
from ottla.spark.pipelines.schedule import read_last_offsets


def run_of(number: str) -> list[Event]:
    unmet = {"has a price": {"action": "drop", "rows": 2}}
    return [
        make_event(number, "run started", pipeline="shop", spark="local[*]"),
        make_event(number, "flows defined", flows=["bronze", "totals"]),
        make_event(number, "flow", flow="bronze", state="running"),
        make_event(number, "progress", flow="bronze", rows=10, batch=0, unmet=unmet, offsets={"t": {"0": 10}}),
        make_event(number, "progress", flow="bronze", rows=5, batch=1, unmet=unmet, offsets={"t": {"0": 15}}),
        make_event(number, "flow", flow="bronze", state="completed"),
        make_event(number, "view", flow="totals", rows=3),
        make_event(number, "lag", flow="bronze", lag=4),
        make_event(number, "run finished", outcome="failed", seconds=1.5, problem="totals: it broke"),
    ]


def test_events_are_written_and_read(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "home" / "events.jsonl")
    assert list(read_events(log.path)) == []
    for event in [*run_of("a"), *run_of("b")]:
        log.add(event)
    with log.path.open("a") as file:
        file.write('{"run": "c", "event": "run sta')
    assert next(iter(read_events(log.path)))["event"] == "run started"
    first, second = gather(read_events(log.path))
    assert (first.id, second.id) == ("a", "b")
    assert second.summary() == "failed after 1.5 s"
    assert second.problems == ["totals: it broke"]
    bronze = second.flows["bronze"]
    assert bronze.cells() == ("bronze", "done", 15, None, "4 dropped (has a price)", 4)
    assert second.flows["totals"].cells() == ("totals", "defined", None, 3, "", None)
    assert read_last_offsets(log.path) == {"bronze": {("t", 0): 15}}


def test_a_run_is_printed_line_by_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    view = View(as_json=False)
    for event in run_of("a"):
        view.take(event)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("s  ", 1)[1] for line in lines[:4]] == [
        "bronze: running",
        "bronze: 10 rows read",
        "bronze: 5 rows read",
        "bronze: done",
    ]
    assert lines[4].split() == ["FLOW", "STATE", "READ", "ROWS", "NOT", "AS", "EXPECTED", "LAG"]
    assert lines[-1] == "run failed after 1.5 s"


def test_json_output_has_the_events(capsys: pytest.CaptureFixture[str]) -> None:
    view = View(as_json=True)
    view.print("starting")
    for event in run_of("a"):
        view.take(event)
    out, err = capsys.readouterr()
    assert err == "starting\n"
    assert out.count('"run": "a"') == 9
