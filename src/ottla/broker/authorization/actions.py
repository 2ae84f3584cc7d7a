"""Operations and resources, and the interface of what decides whether a client may do something."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from ottla.metadata.image.values import Acl
from ottla.protocol.messages.rpc.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse


class Operation(IntEnum):
    """What is done, as rules and answers number it."""

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
    """What it is done with."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one cluster that there is."""

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
"""The operations that answers tell of (KIP-430), for each kind that they tell of."""


class Action(NamedTuple):
    """One operation on one resource, as an authorizer is asked about it."""

    operation: Operation
    kind: ResourceType
    name: str
    references: int = 1
    """How often the request names the resource: each of its partitions, for example."""
    log_if_allowed: bool = True
    """Whether permission grants access; otherwise it only says what the client could do."""
    log_if_denied: bool = True
    """Whether the client asked for this resource; otherwise a refusal only leaves it out of an answer."""


class Who(Protocol):
    """A client: its principal, such as `User:alice`, and its address."""

    @property
    def principal(self) -> str: ...

    @property
    def address(self) -> str: ...


class Asking(Protocol):
    """The request that an authorizer is asked about."""

    @property
    def client(self) -> Who: ...

    @property
    def api_name(self) -> str: ...


Answers = Mapping[Hashable, bool]
"""What an authorizer has decided about one request, by what it was asked."""


class Unanswered(Exception):
    """An authorizer that takes its time has to be asked first. Its caller waits, and then repeats what it did.

    What is repeated must change nothing before its last question: answers are remembered for the length of a request.
    """

    def __init__(self, questions: Sequence[Hashable]) -> None:
        super().__init__("the authorizer has not answered yet")
        self.questions = questions

    async def answers(self) -> Answers:
        """Ask; raises the ApiError that the request is to be answered with if the authorizer cannot decide."""
        raise NotImplementedError

    def then(self, asking: Any, go_on: Callable[[], object], *, refuse: bool = True) -> None:
        """Ask, and go on when the request has the answers; if there are none, all is refused or nothing learned."""
        raise NotImplementedError


class AclStore(Protocol):
    """What keeps an authorizer's ACLs elsewhere than in the cluster's metadata."""

    async def acls(self, wanted: DeleteAclsFilter) -> Iterable[Acl]:
        """The ACLs that a filter describes."""
        ...

    async def create_acls(self, asking: Any, request: CreateAclsRequest) -> CreateAclsResponse:
        """Add ACLs."""
        ...

    async def delete_acls(self, asking: Any, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """Remove ACLs."""
        ...


class Authorizer(Protocol):
    """Decides what clients may do. Without an authorizer, every client may do everything.

    One that cannot decide at once raises Unanswered.
    """

    @property
    def asks_always(self) -> bool:
        """Whether it is asked again about what a session asked for before, though neither ACLs nor client changed."""
        ...

    @property
    def keeper(self) -> AclStore | None:
        """What keeps its ACLs; None if they are in the cluster's metadata."""
        ...

    def authorize(self, asking: Any, actions: Sequence[Action]) -> Sequence[bool]:
        """Whether each of the actions is allowed."""
        ...

    def authorize_any(self, asking: Any, operation: Operation, kind: ResourceType) -> bool:
        """Whether the operation is allowed on at least one resource of a kind."""
        ...
