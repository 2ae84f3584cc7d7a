"""The requests of one fetcher to its leader, and the follower's side of its fetch session (KIP-227)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.protocol.messages.rpc.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.wire.batch import MAX_INT32
from ottla.replication.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from ottla.replication.partition_fetch_state import Key, PartitionFetchState, Phase

_LATEST = -1
_EARLIEST = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The sizes and times of fetches: `replica.fetch.*`."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    partition_max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000


class FetchPosition(NamedTuple):
    """The position in a partition that a fetch sends to the leader."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int


def fetch_position_of(state: PartitionFetchState) -> FetchPosition:
    """Return the position that a partition is fetched from next."""
    log = state.partition.log
    return FetchPosition(state.leader_epoch, log.log_end_offset, log.epochs.latest, log.log_start_offset)


class FollowerSession:
    """The fetch session with the leader, as the leader remembers it."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.sent: dict[Key, FetchPosition] = {}

    @property
    def is_new(self) -> bool:
        """Whether the next request is a full fetch."""
        return self.epoch == INITIAL_EPOCH

    def reset(self) -> None:
        """Forget a session that the leader does not know."""
        self.id = NO_SESSION
        self.restart()

    def restart(self) -> None:
        """Begin another session: the leader may have missed the last request. The next request ends this session."""
        self.epoch = INITIAL_EPOCH
        self.sent.clear()

    def on_response(self, session_id: int) -> None:
        """Advance the session. The leader returns no id if it has no room for a session or nothing to remember."""
        if session_id == NO_SESSION:
            self.reset()
        else:
            self.id = session_id
            self.epoch = 1 if self.epoch == MAX_INT32 else self.epoch + 1


class Requests:
    """Builds the requests of one broker."""

    def __init__(self, broker_id: int, limits: FetchLimits) -> None:
        self._broker_id = broker_id
        self.limits = limits

    def fetch(
        self,
        wanted: Iterable[tuple[Key, FetchPosition]],
        forgotten: Iterable[Key],
        *,
        session: FollowerSession | None,
        broker_epoch: int,
    ) -> FetchRequest:
        """Build a fetch within a session, or without one."""
        limits = self.limits
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, index), position in wanted:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=limits.partition_max_bytes,
                )
            )
        gone: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in forgotten:
            gone.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        return FetchRequest(
            replica_id=self._broker_id,
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=broker_epoch),
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_max_bytes,
            session_id=NO_SESSION if session is None else session.id,
            session_epoch=FINAL_EPOCH if session is None else session.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(gone.values()),
        )

    def offsets(self, states: Iterable[PartitionFetchState]) -> ListOffsetsRequest:
        """Build the request for the leader's log end or log start of partitions whose offset is out of range."""
        topics: dict[str, ListOffsetsTopic] = {}
        for state in states:
            partition = state.partition
            topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.index,
                    current_leader_epoch=state.leader_epoch,
                    timestamp=_LATEST if state.phase is Phase.FINDING_END else _EARLIEST,
                )
            )
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))
