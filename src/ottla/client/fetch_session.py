"""A fetch session (KIP-227): the node remembers what a consumer reads, and hears only of what changed."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.metadata import TopicPartition
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchTopic, ForgottenTopic

_MAX_EPOCH = 0x7FFF_FFFF
NO_SESSION = -1


class PartitionFetch(NamedTuple):
    """What a consumer wants of a partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int


class FetchSession:
    """What one node remembers of this consumer. Without `enabled`, every request says everything."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._known: dict[TopicPartition, PartitionFetch] = {}
        self.id = 0
        self.epoch = 0 if enabled else NO_SESSION

    def request(self, wanted: Mapping[TopicPartition, PartitionFetch]) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What must be said so that the node knows what is wanted."""
        changed = {key: asked for key, asked in wanted.items() if self._known.get(key) != asked}
        forgotten = {key: asked for key, asked in self._known.items() if key not in wanted}
        # A topic that was made anew under its name is another one to the session.
        forgotten |= {
            key: known
            for key, known in self._known.items()
            if key in changed and known.topic_id != changed[key].topic_id
        }
        if self._enabled:
            self._known = dict(wanted)
        topics: dict[str, FetchTopic] = {}
        for (name, partition), asked in changed.items():
            topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=asked.topic_id))
            topic.partitions.append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=asked.leader_epoch,
                    fetch_offset=asked.offset,
                    partition_max_bytes=asked.max_bytes,
                )
            )
        gone: dict[bytes | str, ForgottenTopic] = {}
        for (name, partition), asked in forgotten.items():
            left = gone.setdefault(asked.topic_id or name, ForgottenTopic(topic=name, topic_id=asked.topic_id))
            left.partitions.append(partition)
        return list(topics.values()), list(gone.values())

    def advance(self, session_id: int) -> None:
        """The node took the request. It gives no session if it has no room for one."""
        if not self._enabled:
            return
        if session_id == 0:
            self.reset()
            return
        self.id = session_id
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Begin anew: the session is lost, or whether the node took a request is not known."""
        self._known.clear()
        self.id = 0
        self.epoch = 0 if self._enabled else NO_SESSION
