"""Whether a ConsumerGroupHeartbeat is well formed, before any group is looked at."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.consumer.member import JOINING, LEAVING, LEAVING_STATIC
from ottla.coordinators.groups.consumer.settings import assignors
from ottla.coordinators.groups.context import Context
from ottla.protocol.errors import InvalidRequest, UnsupportedAssignor
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_FIRST_WITH_OWN_ID: Final = 1
"""Members make their ids themselves (KIP-1082)."""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, context: Context) -> None:
    """Raise InvalidRequest or UnsupportedAssignor, with Kafka's words."""
    epoch = request.member_epoch
    if context.version >= _FIRST_WITH_OWN_ID or epoch > JOINING or epoch == LEAVING:
        _check_text(request.member_id, "MemberId can't be empty.")
    _check_text(request.group_id, "GroupId can't be empty.")
    _check_text(request.instance_id, "InstanceId can't be empty.")
    _check_text(request.rack_id, "RackId can't be empty.")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVING_STATIC:
        if request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC:
        raise InvalidRequest("MemberEpoch is invalid.")
    known = assignors(context)
    if request.server_assignor is not None and request.server_assignor not in known:
        named = ", ".join(hash_order(known, string_hash, grown_table_size(len(known))))
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {named}."
        )


def _check_text(text: str | None, words: str) -> None:
    if text is not None and not text.strip():
        raise InvalidRequest(words)
