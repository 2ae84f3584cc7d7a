"""What `ottla topic describe` makes of what a cluster lets it see, and what it does not claim to know."""

import asyncio
from collections.abc import Iterable
from typing import cast

import pytest

from ottla.cli.topic_states import adding_replicas, partition_state, replica_states
from ottla.client.admin import Admin
from ottla.client.metadata import Partition, Topic, TopicPartition
from ottla.client.topic_calls import Reassignment
from ottla.metadata.controller.replica_states import PartitionState, ReplicaState
from ottla.protocol.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    LeaderNotAvailable,
    ListenerNotFound,
    UnsupportedVersion,
)

NEW, ONLINE, OFFLINE = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE


class Asked:
    """An admin client that notes which reassignments it was asked for."""

    def __init__(self, answer: dict[TopicPartition, Reassignment] | ApiError) -> None:
        self.asked: list[TopicPartition] | None = None
        self._answer = answer

    async def reassignments(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Reassignment]:
        self.asked = [*partitions]
        if isinstance(self._answer, ApiError):
            raise self._answer
        return self._answer


def partition(number: int = 0, *, isr: tuple[int, ...], offline: tuple[int, ...] = ()) -> Partition:
    return Partition(number, isr[0] if isr else -1, 3, (1, 2, 3), isr, offline)


def states(admin: Asked, *partitions: Partition) -> list[list[ReplicaState | None]]:
    topic = Topic("t", bytes(16), False, dict(enumerate(partitions)))
    adding = asyncio.run(adding_replicas(cast(Admin, admin), topic))
    return [[*replica_states(each, adding).values()] for each in partitions]


def test_a_replica_that_is_being_added_is_new_and_one_that_lags_is_offline() -> None:
    admin = Asked({("t", 1): Reassignment((1, 2, 3), (3,), ())})
    found = states(admin, partition(0, isr=(1, 2)), partition(1, isr=(1, 2)), partition(2, isr=(1, 2, 3)))
    assert found == [[ONLINE, ONLINE, OFFLINE], [ONLINE, ONLINE, NEW], [ONLINE, ONLINE, ONLINE]]
    assert admin.asked == [("t", 0), ("t", 1)]


def test_the_last_isr_member_is_offline_if_its_broker_is() -> None:
    assert states(Asked({}), partition(isr=(1,), offline=(1, 2, 3))) == [[OFFLINE, OFFLINE, OFFLINE]]


def test_reassignments_are_listed_only_if_a_state_depends_on_them() -> None:
    admin = Asked(ClusterAuthorizationFailed())
    assert states(admin, partition(isr=(1, 2), offline=(3,))) == [[ONLINE, ONLINE, OFFLINE]]
    assert admin.asked is None


@pytest.mark.parametrize("error", [ClusterAuthorizationFailed(), UnsupportedVersion()])
def test_a_state_is_unknown_if_the_cluster_does_not_report_it(error: ApiError) -> None:
    assert states(Asked(error), partition(isr=(1,), offline=(2,))) == [[ONLINE, OFFLINE, None]]


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(LeaderNotAvailable):
        states(Asked(LeaderNotAvailable()), partition(isr=(1,)))


def test_a_partition_is_online_while_it_has_a_leader() -> None:
    leaderless = partition(isr=())
    assert partition_state(partition(isr=(1,))) is PartitionState.ONLINE
    assert partition_state(leaderless) is PartitionState.OFFLINE
    assert partition_state(leaderless._replace(error_code=LeaderNotAvailable.code)) is PartitionState.OFFLINE
    unseen = leaderless._replace(error_code=ListenerNotFound.code)
    assert partition_state(unseen) is None, "it has a leader, which lacks the client's listener"
