"""Creating topics one after the other, and many in one request."""

import time

from bench.harness.case import CREATION_GOALS, Trial, case
from bench.harness.figures import Figures


def create(trial: Trial, requests: int, topics_a_request: int) -> Figures:
    """Measure the time until the last response, and delete the topics afterwards."""
    batches: list[list[str]] = [
        [f"created-{time.monotonic_ns()}-{number}-{topic}" for topic in range(topics_a_request)]
        for number in range(requests)
    ]
    with trial.measured() as figures:
        began = time.perf_counter()
        for names in batches:
            trial.cluster.create_topics(names)
        figures["time_ms"] = (time.perf_counter() - began) * 1000
    trial.cluster.delete_topics([name for names in batches for name in names])
    return figures


@case("topics-100", "100 topics created one after the other", quick=True, goals=CREATION_GOALS, shares=True, seconds=10)
def topics_one_by_one(trial: Trial) -> Figures:
    return create(trial, trial.scaled(100, minimum=5), 1)


@case(
    "topics-500",
    "500 topics created with one request",
    quick=True,
    warm_rounds=10,
    goals=CREATION_GOALS,
    shares=True,
    seconds=3,
)
def topics_in_one_request(trial: Trial) -> Figures:
    return create(trial, 1, trial.scaled(500, minimum=5))
