"""The log lines of the active controller about brokers and leaders."""

import logging
from collections.abc import Callable

import pytest

from ottla.metadata.controller import registration
from ottla.metadata.image.changes import Changes
from ottla.metadata.runtime.cluster_events import log_cluster_events
from ottla.protocol.messages.rpc.unregister_broker import UnregisterBrokerRequest
from tests.unit.metadata.controller.cluster import Cluster


def lines_of(caplog: pytest.LogCaptureFixture, cluster: Cluster, act: Callable[[], object]) -> list[str]:
    before = cluster.image
    act()
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="ottla"):
        log_cluster_events(Changes.between(before, cluster.image))
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_each_change_of_a_broker_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(1)
    assert lines_of(caplog, cluster, lambda: cluster.register(2)) == [
        f"INFO broker 2 is registered with epoch {cluster.epochs[2]}"
    ]
    assert lines_of(caplog, cluster, lambda: cluster.beat(2)) == ["INFO broker 2 is unfenced"]
    assert lines_of(caplog, cluster, lambda: cluster.beat(2)) == []
    cluster.create("t", [2, 1])
    assert "INFO broker 2 is in controlled shutdown" in lines_of(
        caplog, cluster, lambda: cluster.beat(2, want_shut_down=True)
    )
    assert lines_of(caplog, cluster, lambda: cluster.stop(2))[0] == "INFO broker 2 is fenced"
    unregister = UnregisterBrokerRequest(broker_id=2)
    assert lines_of(
        caplog, cluster, lambda: cluster.ask(registration.unregister_broker, unregister, cluster.heartbeats)
    ) == ["INFO broker 2 is unregistered"]


def test_elections_of_one_change_share_a_line(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(1, 2)
    assert lines_of(caplog, cluster, lambda: cluster.create("t", *[[1, 2]] * 7)) == []
    fenced, elected = lines_of(caplog, cluster, lambda: cluster.stop(1))
    assert fenced == "INFO broker 1 is fenced"
    assert elected.startswith("INFO elected new leaders of 7 partitions: t-0 (broker 1 to 2), t-1 (broker 1 to 2)")
    assert elected.endswith("t-4 (broker 1 to 2) and 2 more")
    assert lines_of(caplog, cluster, lambda: cluster.stop(2))[-1].startswith(
        "WARNING 7 partitions have no leader: t-0, t-1"
    )


def test_an_unclean_election_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1, 2], configs={"unclean.leader.election.enable": "true"})
    cluster.stop(2)
    assert lines_of(caplog, cluster, lambda: cluster.start(2)) != []
    cluster.stop(2)
    cluster.stop(1)
    lines = lines_of(caplog, cluster, lambda: cluster.start(2))
    assert any(line.startswith("WARNING unclean leader election of t-0: broker 2 leads") for line in lines)
