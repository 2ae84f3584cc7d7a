"""Ratios, goals and percentiles of samples."""

import pytest
from bench.harness.figures import (
    KAFKA,
    OTTLA,
    CaseResult,
    Comparison,
    Sample,
    Spread,
    compute_percentiles,
    compute_ratio,
    format_value,
)


def sample(system: str, turn: int, value: float, *, life: int = 0, figure: str = "server_cpu_s") -> Sample:
    return Sample(system, life, turn, {figure: value})


def test_a_ratio_compares_figures_of_the_same_round() -> None:
    samples = [
        sample(OTTLA, 1, 1.0),
        sample(KAFKA, 1, 2.0),
        sample(KAFKA, 2, 40.0),  # a disturbance of both systems
        sample(OTTLA, 2, 30.0),
        sample(OTTLA, 1, 1.0, life=1),
        sample(KAFKA, 1, 4.0, life=1),
    ]
    assert compute_ratio(samples, "server_cpu_s") == Spread(0.5, 0.25, 0.75)


def test_a_figure_without_counterpart_has_no_ratio() -> None:
    assert compute_ratio([sample(OTTLA, 1, 1.0), sample(KAFKA, 2, 1.0)], "server_cpu_s") is None
    assert compute_ratio([sample(OTTLA, 1, 1.0), sample(KAFKA, 1, 0.0)], "server_cpu_s") is None
    both = [sample(OTTLA, 1, 1.0, figure="wall_s"), sample(KAFKA, 1, 1.0, figure="wall_s")]
    assert compute_ratio(both, "wall_s") is None


@pytest.mark.parametrize(
    ("figure", "ratio", "misses"),
    [
        ("server_cpu_s", 0.5, False),
        ("server_cpu_s", 0.7, True),
        ("records_per_s", 0.9, True),
        ("records_per_s", 1.1, False),
    ],
)
def test_a_goal_is_missed_in_the_worse_direction(figure: str, ratio: float, misses: bool) -> None:
    goal = 0.6 if figure == "server_cpu_s" else 1.0
    assert Comparison(figure, {}, Spread(ratio, ratio, ratio), goal).misses_goal is misses
    assert not Comparison(figure, {}, Spread(ratio, ratio, ratio), None).misses_goal


def test_warm_rounds_take_precedence_over_cold_ones() -> None:
    result = CaseResult("c", "", "g")
    result.samples = [sample(OTTLA, 0, 9.0), sample(KAFKA, 0, 9.0)]
    assert [s.turn for s in result.settled_samples()] == [0, 0]
    result.samples += [sample(OTTLA, 1, 1.0), sample(KAFKA, 1, 2.0)]
    (comparison,) = result.compare(result.settled_samples())
    assert comparison.ratio == Spread(0.5, 0.5, 0.5)
    assert comparison.spreads[KAFKA].median == 2.0


def test_high_percentiles_need_enough_values() -> None:
    assert compute_percentiles([3.0, 1.0, 2.0]) == {"p50_ms": 2.0, "max_ms": 3.0}
    assert set(compute_percentiles([1.0] * 100)) == {"p50_ms", "max_ms", "p99_ms"}
    figures = compute_percentiles([float(number) for number in range(1000)])
    assert (figures["p50_ms"], figures["p99_ms"], figures["p999_ms"], figures["max_ms"]) == (500, 990, 999, 999)


def test_values_have_three_significant_digits() -> None:
    assert [format_value(value) for value in (0, 0.12345, 12.345, 1234567.8)] == ["0", "0.123", "12.3", "1,234,568"]
