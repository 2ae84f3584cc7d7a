"""The audit log: the authorizer's decisions and their reasons, in the words of Kafka's StandardAuthorizer.

Denials are logged at INFO, permissions at DEBUG. Decisions that neither grant nor refuse access (the operations that a
client could perform, the resources to leave out of a list) are logged at TRACE. Messages are built only if their level
is on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from ottla.broker.authorization.actions import (
    Action,
    AuthorizableRequest,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from ottla.metadata.image.values import Acl

LOGGER: Final = "kafka.authorizer.logger"
_TRACE: Final = 5

_RESOURCES: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}

logger: Final = logging.getLogger(LOGGER)


class Rule:
    """The reason for a decision: a super user, the default, or an ACL."""

    __slots__ = ("acl", "allows", "name")

    def __init__(self, name: str, acl: Acl | None = None, *, allows: bool) -> None:
        self.name = name
        self.acl = acl
        self.allows = allows

    def __str__(self) -> str:
        acl = self.acl
        if acl is None:
            return self.name
        return (
            f"MatchingAcl(acl=StandardAcl[resourceType={_name_of(ResourceType, acl.resource_type)},"
            f" resourceName={acl.resource_name}, patternType={_name_of(PatternType, acl.pattern_type)},"
            f" principal={acl.principal}, host={acl.host}, operation={_name_of(Operation, acl.operation)},"
            f" permissionType={_name_of(PermissionType, acl.permission_type)}])"
        )


SUPER_USER: Final = Rule("SuperUser", allows=True)
DEFAULT_ALLOW: Final = Rule("DefaultAllow", allows=True)
DEFAULT_DENY: Final = Rule("DefaultDeny", allows=False)


def audit(request: AuthorizableRequest, decided: Iterable[tuple[Action, Rule]]) -> None:
    """Log the decisions about a request, each at its level."""
    for action, rule in decided:
        if rule.allows:
            level = logging.DEBUG if action.log_if_allowed else _TRACE
        else:
            level = logging.INFO if action.log_if_denied else _TRACE
        if logger.isEnabledFor(level):
            logger.log(level, "%s", _message(request, action, rule))


def _message(request: AuthorizableRequest, action: Action, rule: Rule) -> str:
    client, outcome = request.client, "Allowed" if rule.allows else "Denied"
    return (
        f"Principal = {client.principal} is {outcome} operation = {action.operation.name}"
        f" from host = {_host(client.address)} on resource = {_RESOURCES[action.kind]}:LITERAL:{action.name}"
        f" for request = {request.api_name} with resourceRefCount = {action.references} based on rule {rule}"
    )


def _host(address: str) -> str:
    """Return an address as Java prints it: IPv6 with all eight groups, without leading zeros."""
    if ":" not in address:
        return address
    before, has_gap, after = address.partition("::")
    groups, rest = before.split(":") if before else [], after.split(":") if after else []
    if has_gap:
        groups += ["0"] * (8 - len(groups) - len(rest))
    return ":".join(groups + rest)


def _name_of(names: type[IntEnum], code: int) -> str:
    try:
        return names(code).name
    except ValueError:
        return "UNKNOWN"
