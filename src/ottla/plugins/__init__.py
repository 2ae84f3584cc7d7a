"""The interfaces of plug-ins, which operators name in `server.properties` to extend a cluster.

    create.topic.policy.class.name=shop.rules:NamedAfterTeams
    alter.config.policy.class.name=shop.rules:KeepsAWeek
    group.consumer.assignors=shop.assigning:Nearest,uniform
    authorizer.class.name=shop.rights:OwnTopicsOnly

A value with a colon names a Python module and a class in it, imported when the node starts (`PYTHONPATH` may add
folders). Any other value is a Java class written for Apache Kafka, which runs in a JVM beside the node: `CLASSPATH` is
its class path, `JAVA_TOOL_OPTIONS` has its options.

    from ottla.plugins import NewTopic, PolicyViolation

    class NamedAfterTeams:
        def configure(self, settings):
            self.teams = settings["shop.teams"].split(",")

        def validate(self, request: NewTopic) -> None:
            if request.name.partition(".")[0] not in self.teams:
                raise PolicyViolation(f"{request.name} does not begin with the name of a team")

A plug-in is created once, without arguments. It may have `configure(settings)`, which receives the node's configuration
file, and `close()`, called when the node stops. Policies are called on the active controller, in a thread of their own,
one call at a time. An assignor is called on the event loop of the group's coordinator and blocks it, so it should
return within milliseconds.

An authorizer decides on every request of clients and other nodes, on brokers and on controllers. It is called in a
thread of its own, one call at a time, and only the request in question waits. All actions of a request on resources of
one type are one call:

    from ottla.plugins import Action, Operation, RequestContext

    class OwnTopicsOnly:
        def authorize(self, context: RequestContext, actions: Sequence[Action]) -> list[bool]:
            user = context.principal.removeprefix("User:")
            return [user == "admin" or action.name.startswith(f"{user}.") for action in actions]

If it raises, takes longer than 10 s or does not return one boolean for each action, the request fails with
UNKNOWN_SERVER_ERROR and has no effect. If it raises an ApiError (`ottla.protocol.errors`), the client receives that
error. Principals of the cluster's own nodes need CLUSTER_ACTION on the cluster. The ACLs in the cluster's metadata are
for Kafka's StandardAuthorizer only: other authorizers store their own rules, and may support changing them.

Imports `metadata`, `coordinators`, `broker` and what is below them; only `node` imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from ottla.broker.authorization.actions import Action, Operation, ResourceType
from ottla.coordinators.groups.consumer.assignor import AssignmentFailed
from ottla.metadata.controller.acls import matches
from ottla.metadata.controller.view import NewTopic
from ottla.metadata.image.values import Acl
from ottla.protocol.errors import PolicyViolation
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsFilter

__all__ = [
    "Acl",
    "AclFilter",
    "Action",
    "AlterConfigPolicy",
    "AlteredConfigs",
    "AssignmentFailed",
    "Assignor",
    "Authorizer",
    "CreateTopicPolicy",
    "Endpoint",
    "Group",
    "Member",
    "NewTopic",
    "Operation",
    "PolicyViolation",
    "RequestContext",
    "ResourceType",
    "ServerInfo",
    "Topic",
]


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """Config changes of one resource, for a policy to judge."""

    resource_type: str
    """`TOPIC`, `BROKER`, `GROUP` or `CLIENT_METRICS`."""
    resource_name: str
    """Empty for the defaults of all brokers."""
    configs: Mapping[str, str | None]
    """The changed configs with their new values; None removes a config."""


class CreateTopicPolicy(Protocol):
    """Judges topics before they are created, also for requests that only validate."""

    def validate(self, request: NewTopic) -> None:
        """Raise PolicyViolation to refuse the topic. The client receives the message."""


class AlterConfigPolicy(Protocol):
    """Judges config changes, and the configs of new topics."""

    def validate(self, request: AlteredConfigs) -> None:
        """Raise PolicyViolation to refuse the change. The client receives the message."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that at least one member of a group subscribes to."""

    partitions: int
    racks: tuple[frozenset[str], ...]
    """The racks in which each partition has replicas."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, as an assignor sees it."""

    topics: frozenset[str]
    """The subscribed topics."""
    partitions: Mapping[str, tuple[int, ...]]
    """The partitions of the current target assignment, by topic."""
    instance_id: str | None
    rack_id: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, as an assignor sees it."""

    members: Mapping[str, Member]
    """By member id."""
    topics: Mapping[str, Topic]
    """By name: all subscribed topics."""


class Assignor(Protocol):
    """Assigns partitions to the members of a consumer group. Members choose it by name (`group.remote.assignor`)."""

    name: str

    def assign(self, group: Group) -> Mapping[str, Mapping[str, Iterable[int]]]:
        """Return partitions by topic, by member id. Members left out get none.

        Raise AssignmentFailed to keep the current assignment; the requesting member receives the message.
        """


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The request to authorize."""

    principal: str
    """Such as `User:alice`; `User:ANONYMOUS` where clients do not authenticate."""
    has_token: bool
    """Whether the client authenticated with a delegation token."""
    address: str
    """The client's address, also if a broker forwarded the request."""
    listener: str
    security_protocol: str
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    api: str
    """Kafka's name of the API, such as `Fetch`."""
    api_key: int
    version: int
    client_id: str
    correlation_id: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener of the node."""

    listener: str
    security_protocol: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The node that the authorizer runs on."""

    cluster_id: str
    node_id: int
    endpoints: tuple[Endpoint, ...]
    inter_broker_endpoint: Endpoint
    """The inter-broker listener; on a node that is only a controller, its first listener."""
    early_start_listeners: frozenset[str]
    """The listeners that must open before the authorizer is ready: `early.start.listeners`."""


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs; None matches any value. Numbers are those of Kafka's protocol."""

    resource_type: int | None = None
    resource_name: str | None = None
    pattern_type: int | None = None
    """3 (LITERAL), 4 (PREFIXED), or 2 (MATCH) for all ACLs that apply to a resource of that name."""
    principal: str | None = None
    host: str | None = None
    operation: int | None = None
    permission_type: int | None = None
    """2 (DENY) or 3 (ALLOW)."""

    def matches(self, acl: Acl) -> bool:
        """Return whether an ACL matches."""
        any_code = 1
        return matches(
            DeleteAclsFilter(
                resource_type_filter=any_code if self.resource_type is None else self.resource_type,
                resource_name_filter=self.resource_name,
                pattern_type_filter=any_code if self.pattern_type is None else self.pattern_type,
                principal_filter=self.principal,
                host_filter=self.host,
                operation=any_code if self.operation is None else self.operation,
                permission_type=any_code if self.permission_type is None else self.permission_type,
            ),
            acl,
        )


class Authorizer(Protocol):
    """Decides what clients and other nodes may do. Only `authorize` is required."""

    def authorize(self, context: RequestContext, actions: Sequence[Action]) -> Sequence[bool]:
        """Return whether each action is allowed, in order."""

    def authorize_by_resource_type(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether the operation is allowed on at least one resource of the type. Without this method it is not.

        Called for an idempotent producer without a transactional id that lacks IDEMPOTENT_WRITE on the cluster.
        """

    def start(self, server: ServerInfo) -> Mapping[str, Future[None]] | None:
        """Start the authorizer. A listener in the result accepts requests once its future is done, others at once.

        If a future fails, the node does not start.
        """

    def create_acls(self, context: RequestContext, acls: Sequence[Acl]) -> Sequence[Exception | None]:
        """Add ACLs, on the active controller. Return None or an ApiError for each. Without it, none can be added."""

    def delete_acls(self, context: RequestContext, filters: Sequence[AclFilter]) -> Sequence[Sequence[Acl] | Exception]:
        """Remove ACLs, on the active controller. Return the removed ACLs or an ApiError for each filter."""

    def acls(self, wanted: AclFilter) -> Iterable[Acl]:
        """Return the ACLs that match a filter. Without this method there are none to list."""

    def close(self) -> None:
        """Release resources when the node stops."""
