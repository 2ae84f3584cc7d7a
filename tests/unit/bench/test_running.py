"""The runner with tiny sizes, real nodes and real clients; a case that fails does not affect the others."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench.__main__ import FULL_MINUTES, QUICK_MINUTES
from bench.harness.case import Case, Trial, all_cases
from bench.harness.figures import OTTLA, CaseResult, Figures
from bench.harness.runner import Plan, Servers, compute_share, run_case, run_cases
from confluent_kafka import KafkaException


def tiny(tmp_path: Path, *, scale: float = 0.002) -> Plan:
    return Plan(scale=scale, quick=True, warm_rounds=1, systems=(OTTLA,), folder=tmp_path)


def run(case: Case, plan: Plan, share_s: float | None = None) -> CaseResult:
    with Servers(plan) as servers:
        return run_case(case, plan, servers, share_s)


def test_cases_run_cold_and_warm_and_are_measured(tmp_path: Path) -> None:
    cases = all_cases()
    (produced,) = run_cases([cases["produce-20"]], tiny(tmp_path))
    (created,) = run_cases([cases["topics-100"]], tiny(tmp_path, scale=0.5))  # enough work for several ticks of 10 ms
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


def test_the_plan_overrides_the_sizes_of_curves(tmp_path: Path) -> None:
    cases, plan = all_cases(), replace(tiny(tmp_path, scale=0.04), sizes=(2, 8))
    replicated, wide = run_cases([cases["growth-replicated"], cases["growth-wide"]], plan)
    assert replicated.problems == wide.problems == {}
    assert [sample.x for sample in (*replicated.samples, *wide.samples)] == [2, 8, 2, 8]
    assert replicated.samples[0].figures.keys() >= {"p50_ms", "idle_percent", "node_mb", "rss_mb"}
    assert replicated.samples[1].figures["each_kb"] >= 0
    for sample in wide.samples:
        assert sample.figures["p50_ms"] > 0
        assert sample.figures["share_p50_ms"] > 0
        assert sample.figures["share_cpu_s"] > 0


def test_a_failed_case_has_a_result(tmp_path: Path) -> None:
    def fail(trial: Trial) -> Figures:
        raise KafkaException("the topic is gone")

    result = run(Case("bad", "", fail, nodes=0), tiny(tmp_path))
    assert result.samples == []
    assert "the topic is gone" in result.problems[OTTLA]


def test_a_case_is_left_out_if_the_system_lacks_an_api(tmp_path: Path) -> None:
    result = run(Case("future", "", lambda _: {}, needs=frozenset({9999})), tiny(tmp_path))
    assert result.problems[OTTLA].startswith("left out")


def test_no_case_begins_after_the_time_is_up(tmp_path: Path) -> None:
    plan = Plan(systems=(OTTLA,), folder=tmp_path, minutes=-1)
    (result,) = run_cases([all_cases()["produce-1k"]], plan)
    assert result.problems == {OTTLA: "left out: the time was up"}


def test_a_case_without_time_left_still_has_one_warm_round(tmp_path: Path) -> None:
    case = Case("slow", "", lambda _: {}, nodes=0, lives=2, warm_rounds=3)
    plan = Plan(systems=(OTTLA,), folder=tmp_path)
    assert [sample.cold for sample in run(case, plan, share_s=0).samples] == [True, False]
    assert len(run(case, plan, share_s=60).samples) == 8


def test_a_bug_in_a_case_is_not_hidden(tmp_path: Path) -> None:
    def wrong(trial: Trial) -> Figures:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(Case("wrong", "", wrong, nodes=0), tiny(tmp_path))


def test_cases_share_servers_and_only_the_first_is_cold(tmp_path: Path) -> None:
    pids: list[list[int]] = []

    def record_pids(trial: Trial) -> Figures:
        pids.append(trial.cluster.pids)
        return {}

    names = ("some-first", "some-second", "some-other", "some-alone", "other-last")
    first, second, other, alone, last = (Case(name, "", record_pids, warm_rounds=1, shares=True) for name in names)
    other = replace(other, settings={"num.partitions": "2"})
    alone = replace(alone, shares=False)
    results = run_cases([first, second, other, alone, last], tiny(tmp_path))
    assert [result.problems for result in results] == [{}] * 5
    cold = [[sample.cold for sample in result.samples] for result in results]
    assert cold == [[True, False], [False], [True, False], [True, False], [True, False]]
    assert pids[0] == pids[1] == pids[2]
    assert len({tuple(cluster_pids) for cluster_pids in pids}) == 4
    assert not list(tmp_path.iterdir()), "servers' data are left behind"


def test_a_case_on_warm_servers_always_has_a_round(tmp_path: Path) -> None:
    first = Case("some-first", "", lambda _: {}, shares=True)
    plan = replace(tiny(tmp_path), warm_rounds=0)
    results = run_cases([first, replace(first, name="some-second")], plan)
    assert [[sample.cold for sample in result.samples] for result in results] == [[True], [False]]


def test_clients_that_stay_have_a_cold_round_on_warm_servers(tmp_path: Path) -> None:
    one = Case("jobs-one", "", lambda _: {}, warm_rounds=1, shares=True, clients_stay=True)
    results = run_cases([one, replace(one, name="jobs-two")], tiny(tmp_path))
    assert [[sample.cold for sample in result.samples] for result in results] == [[True, False]] * 2


def test_servers_on_which_a_case_failed_are_not_shared(tmp_path: Path) -> None:
    def fail(trial: Trial) -> Figures:
        raise KafkaException("the topic is gone")

    bad = Case("some-bad", "", fail, shares=True)
    good = Case("some-good", "", lambda _: {}, warm_rounds=1, shares=True)
    _, result = run_cases([bad, good], tiny(tmp_path))
    assert [sample.cold for sample in result.samples] == [True, False]


def test_time_is_reserved_for_the_waiting_cases() -> None:
    short, long = Case("short", "", lambda _: {}, seconds=10), Case("long", "", lambda _: {}, seconds=100)
    assert (
        compute_share([short, long], Plan(), left_s=120) == 10
    )  # a reserve, because cases may take longer than `seconds`
    assert compute_share([short, long], Plan(), left_s=141) == pytest.approx(20)
    assert compute_share([short, long], Plan(), left_s=100) == 5
    assert compute_share([short, long], Plan(), left_s=20) == 0
    once = Case("once", "", lambda _: {}, warm_rounds=1, seconds=10)
    assert compute_share([once, short, long], Plan(), left_s=152) == 10
    assert compute_share([short, once, long], Plan(), left_s=152) == pytest.approx(20)


def test_all_cases_fit_into_the_time_limit() -> None:
    cases = [case for case in all_cases().values() if not case.named_only]
    quick = Plan(quick=True)
    assert sum(case.seconds for case in cases) < 0.85 * FULL_MINUTES * 60
    assert sum(quick.seconds_of(case) for case in cases if case.quick) < 0.85 * QUICK_MINUTES * 60
