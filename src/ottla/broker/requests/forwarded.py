"""Requests that a broker hands on to the active controller (KIP-590), and answers with what that decides."""

from functools import cache
from typing import Any

from ottla.broker.requests import failures
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.dispatch import Route
from ottla.broker.requests.endpoint import Endpoint, Failed, endpoint
from ottla.protocol.messages.apis import ApiKey


async def forward(call: Call[BrokerNode], request: Any) -> Any:
    """The controller's answer."""
    return await call.node.forward(call, request)


FAILURES: dict[ApiKey, Failed | None] = {
    ApiKey.CREATE_TOPICS: failures.create_topics_failed,
    ApiKey.DELETE_TOPICS: failures.delete_topics_failed,
    ApiKey.CREATE_PARTITIONS: failures.create_partitions_failed,
    ApiKey.ELECT_LEADERS: failures.elect_leaders_failed,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: failures.alter_reassignments_failed,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: failures.list_reassignments_failed,
    ApiKey.ALTER_CLIENT_QUOTAS: failures.alter_client_quotas_failed,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: failures.alter_scram_failed,
    ApiKey.DESCRIBE_QUORUM: None,
    ApiKey.UPDATE_FEATURES: None,
    ApiKey.UNREGISTER_BROKER: None,
    ApiKey.ADD_RAFT_VOTER: None,
    ApiKey.REMOVE_RAFT_VOTER: None,
}
"""The APIs that the controller decides upon, whoever is asked, and how they fail."""

ENDPOINTS: tuple[Endpoint, ...] = tuple(endpoint(key, failed=failed)(forward) for key, failed in FAILURES.items())


def on_behalf(call: Call[Any], key: ApiKey, version: int) -> Call[Any]:
    """A call by which a client asks the controller for what another request of this client needs.

    It carries the client's name and correlation id, and has no answer of its own.
    """
    return Call(
        call.node,
        _route(key, version),
        version,
        call.correlation_id,
        call.client_id,
        call.client,
        call.exchange,
        _Unanswered(),
    )


@cache
def _route(key: ApiKey, version: int) -> Route:
    return Route(next(each for each in ENDPOINTS if each.api.key == key), version)


class _Unanswered:
    """Sends nothing to the client, for which the answer is not meant."""

    def finish(self, call: Call[Any], response: Any, error: Exception | None = None, /) -> None:
        raise AssertionError(f"{call.route.api.name} was sent on behalf of a client: its answer is not for the client")

    def finish_failed(self, call: Call[Any], error: Exception, /) -> None:
        raise AssertionError(f"{call.route.api.name} was sent on behalf of a client, which gets no error") from error
