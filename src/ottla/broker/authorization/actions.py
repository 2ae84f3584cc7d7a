"""Operations, resource types, and the interface of authorizers."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from ottla.metadata.image.values import Acl
from ottla.protocol.messages.rpc.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse


class Operation(IntEnum):
    """The operations of ACLs, with Kafka's numbers."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The types of resources, with Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL names resources, with Kafka's numbers."""

    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Whether an ACL denies or allows, with Kafka's numbers."""

    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The resource name of the cluster."""

SUPPORTED_OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.ALTER,
        Operation.IDEMPOTENT_WRITE,
        Operation.DESCRIBE,
    ),
}
"""The operations that responses list as authorized (KIP-430), by resource type."""


class Action(NamedTuple):
    """One operation on one resource, for an authorizer to decide on."""

    operation: Operation
    kind: ResourceType
    name: str
    references: int = 1
    """How often the request names the resource, for example once for each partition."""
    log_if_allowed: bool = True
    """Whether an allowed action grants access. Otherwise the answer only lists what the client could do."""
    log_if_denied: bool = True
    """Whether the client named the resource. Otherwise a denial only leaves it out of the answer."""


class ClientIdentity(Protocol):
    """A client's principal, such as `User:alice`, and its address."""

    @property
    def principal(self) -> str: ...

    @property
    def address(self) -> str: ...


class AuthorizableRequest(Protocol):
    """The request that an authorizer decides on."""

    @property
    def client(self) -> ClientIdentity: ...

    @property
    def api_name(self) -> str: ...


Answers = Mapping[Hashable, bool]
"""The decisions of an authorizer about one request, by question."""


class Unanswered(Exception):
    """An asynchronous authorizer has not decided yet. The caller waits, and then repeats what it did.

    The repeated code must not change anything before its last question. Decisions last as long as the request.
    """

    def __init__(self, questions: Sequence[Hashable]) -> None:
        super().__init__("the authorizer has not answered yet")
        self.questions = questions

    async def answers(self) -> Answers:
        """Ask the authorizer; raise the ApiError for the client if it cannot decide."""
        raise NotImplementedError

    def then(self, call: Any, resume: Callable[[], object], *, refuse: bool = True) -> None:
        """Ask, and resume with the answers. Without answers, deny everything, or resume with none if not `refuse`."""
        raise NotImplementedError


class AclStore(Protocol):
    """A store of ACLs outside the cluster's metadata."""

    async def acls(self, wanted: DeleteAclsFilter) -> Iterable[Acl]:
        """Return the ACLs that match a filter."""
        ...

    async def create_acls(self, call: Any, request: CreateAclsRequest) -> CreateAclsResponse:
        """Add ACLs."""
        ...

    async def delete_acls(self, call: Any, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """Remove ACLs."""
        ...


class Authorizer(Protocol):
    """Decides what clients may do. Without an authorizer, clients may do everything.

    An authorizer that cannot decide at once raises Unanswered.
    """

    @property
    def must_recheck_sessions(self) -> bool:
        """Whether each request of a session is authorized again, even if neither the ACLs nor the client changed."""
        ...

    @property
    def acl_store(self) -> AclStore | None:
        """The store of its ACLs; None if they are in the cluster's metadata."""
        ...

    def authorize(self, call: Any, actions: Sequence[Action]) -> Sequence[bool]:
        """Return for each action whether it is allowed."""
        ...

    def authorize_any(self, call: Any, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the operation is allowed on at least one resource of a type."""
        ...
