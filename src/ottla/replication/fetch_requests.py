"""The requests of one fetcher to its leader: what a fetch session was told, and what must be told anew (KIP-227)."""

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
    """How much is fetched at a time, and how long is waited for it: `replica.fetch.*`."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    partition_max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000


class FetchPosition(NamedTuple):
    """What the leader was told of a partition."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int


def fetch_position_of(state: PartitionFetchState) -> FetchPosition:
    """What a partition asks for now."""
    log = state.partition.log
    return FetchPosition(state.leader_epoch, log.log_end_offset, log.epochs.latest, log.log_start_offset)


class FollowerSession:
    """What the leader remembers of this fetcher."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.sent: dict[Key, FetchPosition] = {}

    @property
    def is_new(self) -> bool:
        """Whether the next request names everything."""
        return self.epoch == INITIAL_EPOCH

    def reset(self) -> None:
        """Forget the session, for the leader does not know it."""
        self.id = NO_SESSION
        self.restart()

    def restart(self) -> None:
        """Begin another session, for the leader may not have taken the last request. The next one ends this session."""
        self.epoch = INITIAL_EPOCH
        self.sent.clear()

    def on_response(self, session_id: int) -> None:
        """The leader took the request; it gives no session if it has no room for one, or nothing to remember."""
        if session_id == NO_SESSION:
            self.reset()
        else:
            self.id = session_id
            self.epoch = 1 if self.epoch == MAX_INT32 else self.epoch + 1


class Requests:
    """Makes requests in the name of one broker."""

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
        """A fetch within a session, or one that leaves nothing behind."""
        limits = self.limits
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, index), asked in wanted:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=asked.leader_epoch,
                    fetch_offset=asked.offset,
                    last_fetched_epoch=asked.last_epoch,
                    log_start_offset=asked.log_start_offset,
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

    def offsets(self, asking: Iterable[PartitionFetchState]) -> ListOffsetsRequest:
        """Where the leader's logs end or begin, for those that do not fit theirs."""
        topics: dict[str, ListOffsetsTopic] = {}
        for state in asking:
            partition = state.partition
            topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.index,
                    current_leader_epoch=state.leader_epoch,
                    timestamp=_LATEST if state.phase is Phase.FINDING_END else _EARLIEST,
                )
            )
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))
