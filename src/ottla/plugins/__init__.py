"""Plug-ins of a node: what an operator names in `server.properties` to have a say in what the cluster does.

    create.topic.policy.class.name=shop.rules:NamedAfterTeams
    alter.config.policy.class.name=shop.rules:KeepsAWeek
    group.consumer.assignors=shop.assigning:Nearest,uniform
    authorizer.class.name=shop.rights:OwnTopicsOnly

A value with a colon names a module and a class in it, which are imported when the node starts (`PYTHONPATH` says where
else to look). Any other is a class of Java, made for Apache Kafka, which runs in a JVM beside the node: `CLASSPATH` is
its class path, `JAVA_TOOL_OPTIONS` has its options.

    from ottla.plugins import NewTopic, PolicyViolation

    class NamedAfterTeams:
        def configure(self, settings):
            self.teams = settings["shop.teams"].split(",")

        def validate(self, request: NewTopic) -> None:
            if request.name.partition(".")[0] not in self.teams:
                raise PolicyViolation(f"{request.name} is named after no team")

A plug-in is made once, without arguments. It may have `configure(settings)`, which is given the node's configuration
file as it stands, and `close()`, called when the node stops. Policies are asked one question at a time, in a thread of
their own, on the active controller; an assignor is asked on the event loop of the group's coordinator, where all else
waits for it: it should take milliseconds.

An authorizer decides on every request of clients and of other nodes, on brokers and on controllers. It is asked in a
thread of its own, one question at a time, and only the request in question waits for the answer. All that a request
does with resources of one kind is one question:

    from ottla.plugins import Action, Operation, RequestContext

    class OwnTopicsOnly:
        def authorize(self, context: RequestContext, actions: Sequence[Action]) -> list[bool]:
            user = context.principal.removeprefix("User:")
            return [user == "admin" or action.name.startswith(f"{user}.") for action in actions]

If it raises, does not answer within 10 s or answers something else than a list of as many booleans, the request fails
with UNKNOWN_SERVER_ERROR and does nothing; an ApiError (`ottla.protocol.errors`) that it raises is answered instead.
Principals of the cluster's own nodes need CLUSTER_ACTION on the cluster. The ACLs in the cluster's metadata are for
Kafka's StandardAuthorizer: an authorizer that has rules of its own keeps them itself, and may offer to change them.

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
    """Settings that somebody wants to alter, for a policy to judge."""

    resource_type: str
    """`TOPIC`, `BROKER`, `GROUP` or `CLIENT_METRICS`."""
    resource_name: str
    """Empty for the default of all brokers."""
    configs: Mapping[str, str | None]
    """Those that would change, with their new values; None takes a setting away."""


class CreateTopicPolicy(Protocol):
    """Judges topics before they are made, and requests that only ask whether they could be."""

    def validate(self, request: NewTopic) -> None:
        """Raise PolicyViolation if there must be no such topic; the client is told the message."""


class AlterConfigPolicy(Protocol):
    """Judges settings before they are altered, and those that new topics come with."""

    def validate(self, request: AlteredConfigs) -> None:
        """Raise PolicyViolation if they must not be altered so; the client is told the message."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that some member of a group reads."""

    partitions: int
    racks: tuple[frozenset[str], ...]
    """The racks in which each partition has replicas."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, as an assignor sees it."""

    topics: frozenset[str]
    """What it wants to read."""
    partitions: Mapping[str, tuple[int, ...]]
    """What it should have had so far, by topic."""
    instance_id: str | None
    rack_id: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, as an assignor sees it."""

    members: Mapping[str, Member]
    """By their ids."""
    topics: Mapping[str, Topic]
    """By their names: all that some member reads."""


class Assignor(Protocol):
    """Says who of a consumer group should read what. Members ask for it by its name (`group.remote.assignor`)."""

    name: str

    def assign(self, group: Group) -> Mapping[str, Mapping[str, Iterable[int]]]:
        """Partitions by topic, by member id. Whoever is left out gets nothing; raise AssignmentFailed if all should
        stay as it is and the member that speaks is to be told why."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The request that an authorizer is asked about."""

    principal: str
    """Such as `User:alice`; `User:ANONYMOUS` where clients do not authenticate."""
    has_token: bool
    """Whether the client authenticated with a delegation token."""
    address: str
    """The client's address. Of a request that a broker handed on, it is that of the broker's client."""
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
    """The node that an authorizer decides for."""

    cluster_id: str
    node_id: int
    endpoints: tuple[Endpoint, ...]
    inter_broker_endpoint: Endpoint
    """The listener of the other brokers; on a node that is only a controller, its first listener."""
    early_start_listeners: frozenset[str]
    """The listeners that must be open before an authorizer can learn of the cluster: `early.start.listeners`."""


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Describes ACLs; None stands for any value. Numbers are those of Kafka's protocol."""

    resource_type: int | None = None
    resource_name: str | None = None
    pattern_type: int | None = None
    """3 (LITERAL), 4 (PREFIXED), or 2 for all ACLs that concern a resource of the name."""
    principal: str | None = None
    host: str | None = None
    operation: int | None = None
    permission_type: int | None = None
    """2 (DENY) or 3 (ALLOW)."""

    def matches(self, acl: Acl) -> bool:
        """Whether an ACL is one of those described."""
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
    """Decides what clients and other nodes may do. Everything except `authorize` may be left out."""

    def authorize(self, context: RequestContext, actions: Sequence[Action]) -> Sequence[bool]:
        """Whether each of the actions is allowed, in their order."""

    def authorize_by_resource_type(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether the operation is allowed on at least one resource of the type; left out, it never is.

        It is asked when an idempotent producer without a transactional id may not IDEMPOTENT_WRITE on the cluster.
        """

    def start(self, server: ServerInfo) -> Mapping[str, Future[None]] | None:
        """Begin to work. A listener in the result takes requests once its future is done; the others do at once.

        If a future fails, the node does not start.
        """

    def create_acls(self, context: RequestContext, acls: Sequence[Acl]) -> Sequence[Exception | None]:
        """Add ACLs, on the active controller; for each, None or the ApiError why not. Left out, none can be added."""

    def delete_acls(self, context: RequestContext, filters: Sequence[AclFilter]) -> Sequence[Sequence[Acl] | Exception]:
        """Remove ACLs, on the active controller; for each filter, those removed or the ApiError why none was."""

    def acls(self, wanted: AclFilter) -> Iterable[Acl]:
        """The ACLs that a filter describes. Left out, there are none to show."""

    def close(self) -> None:
        """The node stops."""
