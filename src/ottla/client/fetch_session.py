"""A fetch session (KIP-227): the node remembers the consumer's partitions, and requests name only changed ones."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.metadata import TopicPartition
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchTopic, ForgottenTopic

_MAX_EPOCH = 0x7FFF_FFFF
NO_SESSION = -1


class PartitionFetch(NamedTuple):
    """The fetch of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int


class FetchSession:
    """The consumer's fetch session on one node. Without `enabled`, every request names all partitions."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._sent: dict[TopicPartition, PartitionFetch] = {}
        self.id = 0
        self.epoch = 0 if enabled else NO_SESSION

    def request(self, wanted: Mapping[TopicPartition, PartitionFetch]) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """Return the topics that the next fetch must name, and those to forget."""
        changed = {key: asked for key, asked in wanted.items() if self._sent.get(key) != asked}
        forgotten = {key: asked for key, asked in self._sent.items() if key not in wanted}
        # To the session, a recreated topic is another topic.
        forgotten |= {
            key: sent for key, sent in self._sent.items() if key in changed and sent.topic_id != changed[key].topic_id
        }
        if self._enabled:
            self._sent = dict(wanted)
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
            topic_gone = gone.setdefault(asked.topic_id or name, ForgottenTopic(topic=name, topic_id=asked.topic_id))
            topic_gone.partitions.append(partition)
        return list(topics.values()), list(gone.values())

    def advance(self, session_id: int) -> None:
        """Advance the session after a response. The node returns no session id if it has no room for the session."""
        if not self._enabled:
            return
        if session_id == 0:
            self.reset()
            return
        self.id = session_id
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Start a new session: the old one is lost, or the node may not have received a request."""
        self._sent.clear()
        self.id = 0
        self.epoch = 0 if self._enabled else NO_SESSION
