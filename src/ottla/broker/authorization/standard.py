"""Kafka's StandardAuthorizer: the ACLs of the cluster's metadata decide.

An ACL is for one name, for all names with a prefix, or for all names (`*`). An ACL that denies overrides those that
allow. Permission to read, write, delete or alter implies describe, and to alter configs implies to describe them; a
denial implies no other. If no ACL is about a resource, the default decides.

Each decision names the ACL behind it, for the audit log (`audit.py`).
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from ottla.broker.authorization.actions import (
    Action,
    AuthorizableRequest,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from ottla.broker.authorization.audit import DEFAULT_ALLOW, DEFAULT_DENY, SUPER_USER, Rule, audit
from ottla.broker.authorization.audit import logger as audit_logger
from ottla.metadata.image.values import Acl

_ANY_NAME: Final = "*"
_ANY_PRINCIPAL: Final = "User:*"
_MAX_CACHED: Final = 10_000

_Rules: TypeAlias = dict[tuple[int, str], dict[bytes, Acl]]
"""ACLs by resource type and name, then by the ACL's id."""
_NO_RULES: Final[dict[bytes, Acl]] = {}
_NO_DECISIONS: Final[dict[tuple[object, ...], Rule]] = {}

_IMPLIED_BY: Final[dict[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}


def super_users(setting: str) -> frozenset[str]:
    """Return the principals in `super.users`, separated by semicolons; raise ValueError for an invalid one."""
    principals = frozenset(part.strip() for part in setting.split(";") if part.strip())
    for principal in principals:
        if ":" not in principal:
            raise ValueError(f"{principal!r} is not a principal; use Type:name, as in User:alice")
    return principals


class StandardAuthorizer:
    """Decides by ACLs, which are added and removed one by one."""

    def __init__(self, *, super_users: frozenset[str] = frozenset(), allow_without_rules: bool = False) -> None:
        self._super_users = super_users
        self._default = DEFAULT_ALLOW if allow_without_rules else DEFAULT_DENY
        self._literal: _Rules = {}
        self._prefixed: _Rules = {}
        self._lengths: dict[int, tuple[int, ...]] = {}
        """The lengths of prefixes, by resource type: many ACLs have few different lengths."""
        self._decisions: dict[tuple[str, str], dict[tuple[object, ...], Rule]] = {}
        """Cached decisions, by principal and address, then by operation, resource type and name."""
        self._cached_count = 0

    @property
    def must_recheck_sessions(self) -> bool:
        """Whether each request of a session is authorized again: only for the audit log."""
        return audit_logger.isEnabledFor(logging.DEBUG)

    @property
    def acl_store(self) -> None:
        """Its ACLs are in the cluster's metadata."""

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """Add an ACL."""
        self._rules_of(acl).setdefault((acl.resource_type, acl.resource_name), {})[acl_id] = acl
        self._invalidate(acl)

    def remove(self, acl_id: bytes, acl: Acl) -> None:
        """Remove an ACL."""
        rules, key = self._rules_of(acl), (acl.resource_type, acl.resource_name)
        del rules[key][acl_id]
        if not rules[key]:
            del rules[key]
        self._invalidate(acl)

    def authorize(self, request: AuthorizableRequest, actions: Sequence[Action]) -> list[bool]:
        """Return for each action whether it is allowed, and write the decisions into the audit log."""
        client = request.client
        principal, host = client.principal, client.address
        if principal in self._super_users:
            rules = [SUPER_USER] * len(actions)
        else:
            decisions = self._decisions.get((principal, host), _NO_DECISIONS)
            rules = []
            for action in actions:
                rule = decisions.get(action[:3])
                if rule is None:
                    rule = self._decide(principal, host, action)
                    self._cache(principal, host, action, rule)
                rules.append(rule)
        if audit_logger.isEnabledFor(logging.DEBUG):
            audit(request, zip(actions, rules, strict=True))
            return [rule.allows for rule in rules]
        results = [rule.allows for rule in rules]
        if False in results:
            audit(request, [pair for pair in zip(actions, rules, strict=True) if not pair[1].allows])
        return results

    def authorize_any(self, request: AuthorizableRequest, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether an ACL allows a name that no ACL denies. The resource need not exist."""
        any_name = Action(operation, resource_type, "hardcode", references=0, log_if_denied=False)  # Kafka's name, too
        if self.authorize(request, [any_name])[0]:
            return True
        client = request.client
        denied: dict[int, set[str]] = {pattern: set() for pattern in PatternType}
        allowed: dict[int, set[str]] = {pattern: set() for pattern in PatternType}
        for acl in self._acls_of_type(resource_type):
            is_about = acl.operation in (operation, Operation.ALL)
            if is_about and _applies_to(acl, client.principal, client.address):
                names = denied if acl.permission_type == PermissionType.DENY else allowed
                names[acl.pattern_type].add(acl.resource_name)
        if _ANY_NAME in denied[PatternType.LITERAL]:
            return False
        if _ANY_NAME in allowed[PatternType.LITERAL]:
            return True
        candidates = (allowed[PatternType.LITERAL] - denied[PatternType.LITERAL]) | allowed[PatternType.PREFIXED]
        return any(not any(name.startswith(prefix) for prefix in denied[PatternType.PREFIXED]) for name in candidates)

    def _cache(self, principal: str, host: str, action: Action, rule: Rule) -> None:
        if self._cached_count >= _MAX_CACHED:
            self._clear_cache()
        self._decisions.setdefault((principal, host), {})[action[:3]] = rule
        self._cached_count += 1

    def _clear_cache(self) -> None:
        self._decisions.clear()
        self._cached_count = 0

    def _decide(self, principal: str, host: str, action: Action) -> Rule:
        """Return the rule that decides. As in Kafka, this is the first ACL that denies, or the last that allows."""
        has_acl = False
        denying: list[Acl] = []
        allowing: list[Acl] = []
        for acl in self._matching_acls(action.kind, action.name):
            has_acl = True
            if _applies_to(acl, principal, host) and _covers(acl, action.operation):
                (denying if acl.permission_type == PermissionType.DENY else allowing).append(acl)
        if denying:
            return _matching_acl(min(denying, key=_order), allows=False)
        if allowing:
            return _matching_acl(max(allowing, key=_order), allows=True)
        return DEFAULT_DENY if has_acl else self._default

    def _matching_acls(self, resource_type: int, name: str) -> Iterable[Acl]:
        yield from self._literal.get((resource_type, name), _NO_RULES).values()
        if name != _ANY_NAME:
            yield from self._literal.get((resource_type, _ANY_NAME), _NO_RULES).values()
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                break
            yield from self._prefixed.get((resource_type, name[:length]), _NO_RULES).values()

    def _acls_of_type(self, resource_type: int) -> Iterable[Acl]:
        for rules in (self._literal, self._prefixed):
            for (acl_type, _), acls in rules.items():
                if acl_type == resource_type:
                    yield from acls.values()

    def _rules_of(self, acl: Acl) -> _Rules:
        return self._prefixed if acl.pattern_type == PatternType.PREFIXED else self._literal

    def _invalidate(self, acl: Acl) -> None:
        self._clear_cache()
        resource_type = acl.resource_type
        if acl.pattern_type == PatternType.PREFIXED:
            lengths = {len(name) for acl_type, name in self._prefixed if acl_type == resource_type}
            self._lengths[resource_type] = tuple(sorted(lengths))


def _matching_acl(acl: Acl, *, allows: bool) -> Rule:
    return Rule("MatchingAcl", acl, allows=allows)


def _order(acl: Acl) -> tuple[object, ...]:
    """Return the key for Kafka's order of the ACLs of a resource: long names first, ACLs for all names last."""
    is_for_all = acl.resource_name == _ANY_NAME and acl.pattern_type == PatternType.LITERAL
    return (
        is_for_all,
        -len(acl.resource_name),
        acl.pattern_type,
        acl.operation,
        acl.principal,
        acl.host,
        acl.permission_type,
    )


def _applies_to(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, _ANY_PRINCIPAL) and acl.host in (host, _ANY_NAME)


def _covers(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission_type == PermissionType.ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())
