"""StreamsGroupHeartbeat (key 88): a member joins, stays in or leaves a streams group, and gets tasks (KIP-1071).

If internal topics of its topology are missing, this broker asks the controller to create them. The answer reports the
missing topics and earlier failures.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ottla.broker.authorization.access_checks import filter_allowed, is_allowed, run_when_decided
from ottla.broker.authorization.actions import Operation, ResourceType
from ottla.broker.authorization.streams_guards import guard_streams_group_heartbeat
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.streams.checking import check_heartbeat, check_topic_names
from ottla.coordinators.groups.streams.heartbeat import HeartbeatReply, heartbeat
from ottla.coordinators.groups.streams.partition_counts import StreamsStatus
from ottla.coordinators.groups.streams.settings import heartbeat_interval_ms
from ottla.protocol.errors import (
    ApiError,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    StreamsInvalidTopology,
    UnknownMemberId,
    UnsupportedVersion,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from ottla.protocol.metadata_versions import STREAMS_VERSION

_FIRST_WITH_STREAMS_GROUPS: Final = 1
_SHOWN_FAILURES: Final = 3
_ERRORS_WITH_MESSAGE: Final = (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    StreamsInvalidTopology,
    UnknownMemberId,
)
"""The errors for which Kafka's coordinator sends a message."""


def check_enabled(call: Call[BrokerNode]) -> None:
    """Raise UnsupportedVersion unless the cluster's features and this broker's settings enable streams groups."""
    is_supported = call.node.image.features.level(STREAMS_VERSION) >= _FIRST_WITH_STREAMS_GROUPS
    if not is_supported or "streams" not in call.node.setting("group.coordinator.rebalance.protocols"):
        raise UnsupportedVersion("The version of API is not supported.")


def heartbeat_failed(
    request: StreamsGroupHeartbeatRequest, version: int, error: ApiError
) -> StreamsGroupHeartbeatResponse:
    """Return the error, with a message if Kafka sends one."""
    message = error.message if isinstance(error, _ERRORS_WITH_MESSAGE) else None
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=message)


@endpoint(ApiKey.STREAMS_GROUP_HEARTBEAT, failed=heartbeat_failed, guard=guard_streams_group_heartbeat)
def streams_group_heartbeat(call: Call[BrokerNode], request: StreamsGroupHeartbeatRequest) -> Later:
    """Let the group's coordinator decide."""
    check_enabled(call)
    if request.topology is not None:
        check_topic_names(request.topology)
    context = context_of(call)
    check_heartbeat(request)
    shard = call.node.groups.shard_for(request.group_id)
    return submit_to_coordinator(
        shard, _Ticket(call, request, context), lambda state: heartbeat(state, request, context)
    )


class _Ticket(CallTicket):
    """A heartbeat, whose answer may have to ask for missing topics."""

    __slots__ = ("context",)

    def __init__(self, call: Call[BrokerNode], request: StreamsGroupHeartbeatRequest, context: Context) -> None:
        super().__init__(call, request)
        self.context = context

    def answer(self, reply: Any, /) -> None:
        assert isinstance(reply, HeartbeatReply), f"{reply!r} is not the reply to a heartbeat"
        run_when_decided(self.call, partial(self._answer, reply))

    def _answer(self, reply: HeartbeatReply) -> None:
        if reply.missing:
            self._create(reply)
        self.call.answer(reply.response)

    def _create(self, reply: HeartbeatReply) -> None:
        call, context = self.call, self.context
        names = [topic.name for topic in reply.missing]
        if not is_allowed(call, Operation.CREATE, ResourceType.CLUSTER, log_if_denied=False):
            creatable = filter_allowed(call, Operation.CREATE, ResourceType.TOPIC, names)
            refused = [name for name in names if name not in creatable]
            if refused:
                _add(reply.response, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
                return
        # For two heartbeat intervals, a failure is reported, and the creation is not retried.
        pause_ms = 2 * heartbeat_interval_ms(self.request.group_id, context)
        failures = list(call.node.create_streams_topics(call, reply.missing, pause_ms, call.node.now_ms()).items())
        if failures:
            shown = ", ".join(f"{name} ({reason})" for name, reason in failures[:_SHOWN_FAILURES])
            if len(failures) > _SHOWN_FAILURES:
                shown += f" and {len(failures) - _SHOWN_FAILURES} more"
            _add(reply.response, f"Creation failed: {shown}.")


def _add(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    """Add a detail to the status of the missing topics."""
    for status in response.status or ():
        if status.status_code == StreamsStatus.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {detail}"
