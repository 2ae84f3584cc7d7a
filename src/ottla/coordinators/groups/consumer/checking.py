"""Validation of ConsumerGroupHeartbeat, before the group is looked up."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.consumer.member import JOINING, LEAVING, LEAVING_STATIC
from ottla.coordinators.groups.consumer.settings import available_assignors
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.request_checks import check_not_blank
from ottla.protocol.errors import InvalidRequest, UnsupportedAssignor
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_FIRST_WITH_OWN_ID: Final = 1
"""From this version on members generate their ids themselves (KIP-1082)."""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, context: Context) -> None:
    """Raise InvalidRequest or UnsupportedAssignor, with Kafka's messages."""
    epoch = request.member_epoch
    if context.version >= _FIRST_WITH_OWN_ID or epoch > JOINING or epoch == LEAVING:
        check_not_blank(request.member_id, "MemberId")
    check_not_blank(request.group_id, "GroupId")
    check_not_blank(request.instance_id, "InstanceId")
    check_not_blank(request.rack_id, "RackId")
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
    supported = available_assignors(context)
    if request.server_assignor is not None and request.server_assignor not in supported:
        names = ", ".join(hash_order(supported, string_hash, grown_table_size(len(supported))))
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {names}."
        )
