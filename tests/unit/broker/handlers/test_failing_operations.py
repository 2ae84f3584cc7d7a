"""Requests in purgatory that a defect keeps from completing: their clients get an error, and nobody else notices."""

from typing import Any

import pytest

from ottla.protocol.errors import NONE, UnknownServerError
from ottla.replication.partition import Partition
from tests.support.broker import NOW_MS, Broker
from tests.support.logs_in_memory import batch
from tests.unit.broker.handlers.test_failed_directories import fetch, fetched, produce, produced, replicated


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of methods of partitions that fail from now on."""
    names: list[str] = []

    def failing(name: str) -> Any:
        original = getattr(Partition, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if name in names:
                raise ValueError("broken")
            return original(*arguments, **named)

        return call

    for name in ("has_replicated", "read"):
        monkeypatch.setattr(Partition, name, failing(name))
    return names


def test_a_produce_that_waits_for_replicas(broker: Broker, broken: list[str], caplog: pytest.LogCaptureFixture) -> None:
    replicated(broker)
    waiting, other = produce(broker), fetch(broker, 11, min_bytes=1)
    assert not waiting.outcome
    broken.append("has_replicated")
    broker.partition("t").on_follower_fetch(2, 1, 0, NOW_MS)
    broker.completions.run()
    broken.clear()
    assert produced(waiting) == UnknownServerError.code
    assert fetched(other) == NONE
    assert len(broker.node.timer) == 0
    assert "Produce v9 failed: ProduceRequest(" in caplog.text


@pytest.mark.parametrize("by", ["a change", "the deadline"])
def test_a_fetch_that_waits_for_records(
    broker: Broker, broken: list[str], by: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t")
    waiting = fetch(broker, 11, min_bytes=1)
    assert not waiting.outcome
    broken.append("read")
    if by == "a change":
        broker.append("t", 0, batch(b"1"))
        broker.completions.run()
    else:
        broker.clock.pass_time(2000)
    assert waiting.response.error_code == UnknownServerError.code
    assert len(broker.node.timer) == 0
    assert "Fetch v11 failed: FetchRequest(" in caplog.text
