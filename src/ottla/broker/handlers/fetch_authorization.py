"""Authorization of fetches. The authorizer is asked once about all topics, each with the number of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from operator import attrgetter
from typing import Final

from ottla.broker.authorization.access_checks import filter_allowed_counted, is_allowed
from ottla.broker.authorization.actions import Operation, ResourceType
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.protocol.errors import TopicAuthorizationFailed
from ottla.protocol.messages.rpc.fetch import FetchRequest
from ottla.replication.fetch_sessions import FIRST_WITH_IDS, CachedPartition, FetchedPartitions

_topic_of = attrgetter("topic")


class _EveryTopic:
    """Contains the name of every topic."""

    def __contains__(self, name: object) -> bool:
        return True


_EVERY_TOPIC: Final = _EveryTopic()


def unreadable(
    call: Call[BrokerNode], request: FetchRequest, fetched: FetchedPartitions, *, only_changed: bool
) -> Container[str] | None:
    """Return the topics of a fetch that the client may not read; None if it may read all. Followers must be brokers."""
    if fetched.replica >= 0:
        return None if is_allowed(call, Operation.CLUSTER_ACTION, ResourceType.CLUSTER) else _EVERY_TOPIC
    counts: dict[str, int] = {}
    if fetched.session is None and call.version < FIRST_WITH_IDS:
        for requested in request.topics:
            counts[requested.topic] = counts.get(requested.topic, 0) + len(requested.partitions)
    else:
        partitions = fetched.changed if only_changed else fetched.partitions.values()
        for topic, count in Counter(map(_topic_of, partitions)).items():
            name = topic if isinstance(topic, str) else _name_of(call, topic, partitions)
            if name is not None:  # otherwise the answer is that no topic has this id
                counts[name] = counts.get(name, 0) + count
    readable = filter_allowed_counted(call, Operation.READ, ResourceType.TOPIC, counts)
    return None if len(readable) == len(counts) else counts.keys() - readable


def check_readable(call: Call[BrokerNode], cached: CachedPartition, forbidden: Container[str]) -> None:
    """Raise TopicAuthorizationFailed if a partition belongs to a forbidden topic."""
    topic = cached.topic
    name = topic if isinstance(topic, str) else _name_of(call, topic, (cached,))
    if name is not None and name in forbidden:
        raise TopicAuthorizationFailed("Topic authorization failed.")


def _name_of(call: Call[BrokerNode], topic_id: bytes, partitions: Iterable[CachedPartition]) -> str | None:
    """Return the name of a topic; for a deleted topic, the name that it had when the session or the wait began."""
    topic = call.node.image.topic_by_id(topic_id)
    if topic is not None:
        return topic.name
    return next((cached.name for cached in partitions if cached.topic == topic_id), None)
