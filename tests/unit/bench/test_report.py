"""The report: its table, page, plots and file, and the place of the table in the documentation."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.harness.figures import KAFKA, OTTLA, CaseResult, Sample, Spread
from bench.report import store, table
from bench.report.flame import flame_graph
from bench.report.flame import table as profile_table
from bench.report.page import render_page
from bench.report.plots import Bar, draw_bars, draw_curves, growth_exponent

STACKS = """\
run (loop.py:1);parse (ottla/net.py:5);send (ottla/net.py:9) 3
run (loop.py:1);parse (ottla/net.py:6) 1
bootstrap (threading.py:2);_worker (concurrent/futures/thread.py:81) 90
"""


def results() -> store.Results:
    produce = CaseResult("produce-x", "1 M × <b>", "produce", {"server_cpu_s": 0.6, "p99_ms": 0.7})
    produce.samples = [
        Sample(OTTLA, 0, 0, {"server_cpu_s": 3.0, "p99_ms": 30.0}),
        Sample(KAFKA, 0, 0, {"server_cpu_s": 4.0, "p99_ms": 30.0}),
        Sample(OTTLA, 0, 1, {"server_cpu_s": 1.0, "p99_ms": 10.0, "others_cores": 0.5}),
        Sample(KAFKA, 0, 1, {"server_cpu_s": 2.0, "p99_ms": 10.0, "others_cores": 0.5}),
    ]
    growth = CaseResult("growth-y", "curve", "growth", axis="partitions")
    growth.samples = [
        Sample(system, 0, 0, {"rss_mb": rss * x, "idle_percent": 0.0}, x)
        for x in (1, 10)
        for system, rss in ((OTTLA, 1.0), (KAFKA, 5.0))
    ]
    broken = CaseResult("groups-z", "not yet", "groups", problems={OTTLA: "left out: it serves no groups"})
    machine = {"processor": "p", "cores": "2", "memory": "4 GiB", "system": "Linux", "python": "3.11"}
    plan = {"scale": 1.0, "quick": False}
    systems = {OTTLA: "Ottla 1", KAFKA: "Apache Kafka 4.3.1"}
    return store.Results("2026-03-01T10:00", machine, systems, plan, [produce, growth, broken])


def test_results_survive_a_round_trip_through_their_file(tmp_path: Path) -> None:
    store.write(results(), tmp_path / "r.json")
    assert store.read(tmp_path / "r.json") == results()


def test_a_file_with_other_content_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"cases": [{"figures": {}}]}')
    with pytest.raises(ValueError, match="holds no benchmark results"):
        store.read(tmp_path / "r.json")


def test_a_later_run_replaces_the_cases_that_it_ran() -> None:
    later = results()
    later.cases = [CaseResult("produce-x", "again", "produce"), CaseResult("more", "", "more")]
    titles = {case.name: case.title for case in store.merge(results(), later).cases}
    assert titles == {"produce-x": "again", "growth-y": "curve", "groups-z": "not yet", "more": ""}


def test_the_table_has_warm_and_cold_ratios_and_marks_missed_goals() -> None:
    text = table.format_table(results())
    assert "| produce: 1 M × <b> | 0.5× (0.75×) |  |  |  |  | **1×** (1×) |  |" in text
    assert "| growth: curve: 10 partitions |  |  |  |  |  |  | 0.2× |" in text
    assert "groups" not in text
    assert "0.5 cores" in text


def test_misses_include_missed_goals_and_failed_cases() -> None:
    assert table.list_misses(results()) == [
        "produce-x: p99_ms 1× (goal 0.7×)",
        "groups-z: not measured: left out: it serves no groups",
    ]


def test_misses_include_exceeded_limits_and_steep_rises() -> None:
    growth = CaseResult("growth-y", "", "growth", limits={"each_kb": 4.0}, rises={"p50_ms": 1.5, "server_cpu_s": 3.0})
    growth.axis = "partitions"
    growth.samples = [
        Sample(OTTLA, 0, 0, {"p50_ms": 1.0, "server_cpu_s": 1.0}, 3),
        Sample(OTTLA, 0, 0, {"p50_ms": 9.0, "server_cpu_s": 9.0, "each_kb": 5.0}, 300),
        Sample(OTTLA, 0, 0, {"p50_ms": 2.0, "server_cpu_s": 2.0, "each_kb": 3.0}, 1_000),
        Sample(KAFKA, 0, 0, {"p50_ms": 9.0, "server_cpu_s": 90.0, "each_kb": 50.0}, 1_000),
    ]
    growth_results = results()
    growth_results.cases = [growth]
    assert table.list_misses(growth_results) == [
        "growth-y at 300 partitions: each_kb 5 (limit 4)",
        "growth-y: p50_ms 2× from the first size to the last (goal 1.5×)",
    ]


def test_the_table_replaces_the_text_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.insert_into_page("new\n", page)
    assert page.read_text() == f"before\n{table.BEGIN}\nnew\n{table.END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(table.MarkersMissing):
        table.insert_into_page("new\n", page)


def test_the_page_is_self_contained_and_escaped() -> None:
    text = render_page(results())
    assert "<b>" not in text
    assert "1 M × &lt;b&gt;" in text
    assert not any(mark in text for mark in ("<script", "<link", "src=", "@import"))
    assert text.count("<svg") == 2 + 2  # bars of CPU and p99; curves of memory and idle cost
    assert "left out: it serves no groups" in text


def test_plots_are_well_formed_and_stay_within_their_edges() -> None:
    svg = ElementTree.fromstring(draw_bars([Bar("a & b", Spread(0.001, 0.0005, 90.0), 0.6, misses_goal=True)]))
    for rectangle in svg.iter("{http://www.w3.org/2000/svg}rect"):
        assert 330 <= float(rectangle.get("x", "0")) <= 860
    ElementTree.fromstring(draw_curves("c", {"ottla": [(1, 0.0), (10, 5.0)], "kafka": [(1, 2.0)]}))


def test_the_exponent_distinguishes_flat_linear_and_quadratic_curves() -> None:
    assert growth_exponent([(1, 5.0), (10, 5.0), (100, 5.0)]) == pytest.approx(0)
    assert growth_exponent([(1, 1.0), (10, 10.0)]) == pytest.approx(1)
    assert growth_exponent([(1, 1.0), (10, 1.0), (100, 100.0)]) == pytest.approx(2)
    assert growth_exponent([(1, 1.0)]) is None


def test_a_profile_sums_up_functions_without_idle_threads() -> None:
    rows = profile_table(STACKS).splitlines()[1:]
    assert rows == ["  75.0%   75.0%  send (ottla/net.py)", "  25.0%  100.0%  parse (ottla/net.py)"]


def test_a_flame_is_as_wide_as_its_share_of_the_time() -> None:
    svg = ElementTree.fromstring(flame_graph(STACKS, "a & b"))
    namespace = "{http://www.w3.org/2000/svg}"
    widths = {group[0].text: float(group[1].get("width", "0")) for group in svg.iter(f"{namespace}g")}
    assert widths["parse (ottla/net.py): 100.0%"] == 1400
    assert widths["send (ottla/net.py): 75.0%"] == 1050
    assert not any("_worker" in (name or "") for name in widths)
