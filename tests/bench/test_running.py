"""The harness itself, on tiny sizes: real nodes, real clients, and cases that fail without spoiling the others."""

from pathlib import Path

import pytest
from bench.case import Case, Trial, every_case
from bench.figures import OTTLA, Figures
from bench.runner import Plan, run_case, run_cases
from confluent_kafka import KafkaException


def tiny(tmp_path: Path, *, scale: float = 0.002) -> Plan:
    return Plan(scale=scale, quick=True, warm_rounds=1, systems=(OTTLA,), folder=tmp_path)


def test_cases_run_cold_and_warm_and_are_measured(tmp_path: Path) -> None:
    cases = every_case()
    (produced,) = run_cases([cases["produce-20"]], tiny(tmp_path))
    (created,) = run_cases([cases["topics-100"]], tiny(tmp_path, scale=0.5))  # so many that they take ticks of 10 ms
    assert produced.problems == created.problems == {}
    for result in (produced, created):
        assert [sample.cold for sample in result.samples] == [True, False]
        for sample in result.samples:
            assert sample.figures["server_cpu_s"] > 0
            assert sample.figures["rss_peak_mb"] > 10
    assert produced.samples[0].figures["records_per_s"] > 0
    assert produced.samples[0].figures["disk_mb"] > 0.4  # 400 records of 1,000 bytes
    assert created.samples[0].figures["time_ms"] > 0
    assert not list(tmp_path.iterdir()), "servers' data are left behind"


def test_a_case_that_fails_is_a_result_too(tmp_path: Path) -> None:
    def fail(trial: Trial) -> Figures:
        raise KafkaException("the topic is gone")

    result = run_case(Case("bad", "", fail, nodes=0), tiny(tmp_path))
    assert result.samples == []
    assert "the topic is gone" in result.problems[OTTLA]


def test_what_a_system_cannot_do_is_left_out(tmp_path: Path) -> None:
    result = run_case(Case("future", "", lambda _: {}, needs=frozenset({9999})), tiny(tmp_path))
    assert result.problems[OTTLA].startswith("left out")


def test_nothing_begins_when_the_time_is_up(tmp_path: Path) -> None:
    plan = Plan(systems=(OTTLA,), folder=tmp_path, minutes=-1)
    (result,) = run_cases([every_case()["produce-1k"]], plan)
    assert result.problems == {OTTLA: "left out: the time was up"}


def test_a_case_that_has_used_up_its_share_ends_with_a_warm_round(tmp_path: Path) -> None:
    case = Case("slow", "", lambda _: {}, nodes=0, lives=2, warm_rounds=3)
    plan = Plan(systems=(OTTLA,), folder=tmp_path)
    assert [sample.cold for sample in run_case(case, plan, share_s=0).samples] == [True, False]
    assert len(run_case(case, plan, share_s=60).samples) == 8


def test_a_bug_in_a_case_is_not_hidden(tmp_path: Path) -> None:
    def wrong(trial: Trial) -> Figures:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_case(Case("wrong", "", wrong, nodes=0), tiny(tmp_path))
