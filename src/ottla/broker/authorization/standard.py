"""Kafka's StandardAuthorizer: access rules from the cluster's metadata decide.

Rules are for one name, for all names that begin alike, or for all (`*`). A rule that denies counts for more than any
that allows. Who may read, write, delete or alter may also describe; who may alter settings may also see them; to be
denied one of these denies no other. Without any rule that concerns a resource, the default decides.

Each decision names the rule behind it, for the audit log (`audit.py`).
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from ottla.broker.authorization.actions import Action, Asking, Operation, ResourceType
from ottla.broker.authorization.audit import DEFAULT_ALLOW, DEFAULT_DENY, SUPER_USER, Rule, audit
from ottla.broker.authorization.audit import logger as audit_logger
from ottla.metadata.image.values import Acl

_LITERAL, _PREFIXED = 3, 4
_DENY, _ALLOW = 2, 3
_ANYTHING: Final = "*"
_ANYBODY: Final = "User:*"
_MOST_REMEMBERED: Final = 10_000

_Rules: TypeAlias = dict[tuple[int, str], dict[bytes, Acl]]
"""By the kind and name of the resource, then by the rule's id."""
_NO_RULES: Final[dict[bytes, Acl]] = {}
_NOTHING_REMEMBERED: Final[dict[tuple[object, ...], Rule]] = {}

_IMPLIED_BY: Final[dict[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}


def super_users(setting: str) -> frozenset[str]:
    """The principals that `super.users` names, between semicolons; ValueError for what names none."""
    found = frozenset(each.strip() for each in setting.split(";") if each.strip())
    for each in found:
        if ":" not in each:
            raise ValueError(f"{each!r} is no principal: Type:name is expected, as in User:alice")
    return found


class StandardAuthorizer:
    """Decides by rules, which are put in and taken out one by one."""

    def __init__(self, *, super_users: frozenset[str] = frozenset(), allow_without_rules: bool = False) -> None:
        self._super_users = super_users
        self._default = DEFAULT_ALLOW if allow_without_rules else DEFAULT_DENY
        self._literal: _Rules = {}
        self._prefixed: _Rules = {}
        self._lengths: dict[int, tuple[int, ...]] = {}
        """How long the prefixes are, for each kind of resource: few different lengths, however many rules."""
        self._remembered: dict[tuple[str, str], dict[tuple[object, ...], Rule]] = {}
        """What decided, by principal and address, then by operation, kind and name."""
        self._remembered_count = 0

    @property
    def asks_always(self) -> bool:
        """Whether requests whose rules and client have not changed are put to it again: for the audit log."""
        return audit_logger.isEnabledFor(logging.DEBUG)

    @property
    def keeper(self) -> None:
        """Its ACLs are in the cluster's metadata."""

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """A rule is in force from now on."""
        self._rules_of(acl).setdefault((acl.resource_type, acl.resource_name), {})[acl_id] = acl
        self._changed(acl)

    def remove(self, acl_id: bytes, acl: Acl) -> None:
        """A rule is no longer in force."""
        rules, key = self._rules_of(acl), (acl.resource_type, acl.resource_name)
        del rules[key][acl_id]
        if not rules[key]:
            del rules[key]
        self._changed(acl)

    def authorize(self, asking: Asking, actions: Sequence[Action]) -> list[bool]:
        """Whether each of the actions is allowed; the decisions are written into the audit log."""
        client = asking.client
        principal, host = client.principal, client.address
        if principal in self._super_users:
            rules = [SUPER_USER] * len(actions)
        else:
            remembered = self._remembered.get((principal, host), _NOTHING_REMEMBERED)
            rules = []
            for action in actions:
                rule = remembered.get(action[:3])
                if rule is None:
                    rule = self._decide(principal, host, action)
                    self._remember(principal, host, action, rule)
                rules.append(rule)
        if audit_logger.isEnabledFor(logging.DEBUG):
            audit(asking, zip(actions, rules, strict=True))
            return [rule.allows for rule in rules]
        results = [rule.allows for rule in rules]
        if False in results:
            audit(asking, [pair for pair in zip(actions, rules, strict=True) if not pair[1].allows])
        return results

    def authorize_any(self, asking: Asking, operation: Operation, kind: ResourceType) -> bool:
        """Whether some name is allowed that no rule denies; nothing of that name needs to exist."""
        if self.authorize(asking, [Action(operation, kind, "hardcode", references=0, log_if_denied=False)])[0]:
            return True
        client = asking.client
        denied: dict[int, set[str]] = {_LITERAL: set(), _PREFIXED: set()}
        allowed: dict[int, set[str]] = {_LITERAL: set(), _PREFIXED: set()}
        for acl in self._all_of(kind):
            if not _is_for(acl, client.principal, client.address) or acl.operation not in (operation, Operation.ALL):
                continue
            (denied if acl.permission_type == _DENY else allowed)[acl.pattern_type].add(acl.resource_name)
        if _ANYTHING in denied[_LITERAL]:
            return False
        if _ANYTHING in allowed[_LITERAL]:
            return True
        candidates = (allowed[_LITERAL] - denied[_LITERAL]) | allowed[_PREFIXED]
        return any(not any(name.startswith(prefix) for prefix in denied[_PREFIXED]) for name in candidates)

    def _remember(self, principal: str, host: str, action: Action, rule: Rule) -> None:
        if self._remembered_count >= _MOST_REMEMBERED:
            self._forget()
        self._remembered.setdefault((principal, host), {})[action[:3]] = rule
        self._remembered_count += 1

    def _forget(self) -> None:
        self._remembered.clear()
        self._remembered_count = 0

    def _decide(self, principal: str, host: str, action: Action) -> Rule:
        """What decides: of several rules the one that Kafka names, the first that denies or the last that allows."""
        concerned = False
        denying: list[Acl] = []
        allowing: list[Acl] = []
        for acl in self._concerning(action.kind, action.name):
            concerned = True
            if _is_for(acl, principal, host) and _is_about(acl, action.operation):
                (denying if acl.permission_type == _DENY else allowing).append(acl)
        if denying:
            return _matching(min(denying, key=_order), allows=False)
        if allowing:
            return _matching(max(allowing, key=_order), allows=True)
        return DEFAULT_DENY if concerned else self._default

    def _concerning(self, kind: int, name: str) -> Iterable[Acl]:
        yield from self._literal.get((kind, name), _NO_RULES).values()
        if name != _ANYTHING:
            yield from self._literal.get((kind, _ANYTHING), _NO_RULES).values()
        for length in self._lengths.get(kind, ()):
            if length > len(name):
                break
            yield from self._prefixed.get((kind, name[:length]), _NO_RULES).values()

    def _all_of(self, kind: int) -> Iterable[Acl]:
        for rules in (self._literal, self._prefixed):
            for (of_kind, _), acls in rules.items():
                if of_kind == kind:
                    yield from acls.values()

    def _rules_of(self, acl: Acl) -> _Rules:
        return self._prefixed if acl.pattern_type == _PREFIXED else self._literal

    def _changed(self, acl: Acl) -> None:
        self._forget()
        kind = acl.resource_type
        if acl.pattern_type == _PREFIXED:
            self._lengths[kind] = tuple(sorted({len(name) for of_kind, name in self._prefixed if of_kind == kind}))


def _matching(acl: Acl, *, allows: bool) -> Rule:
    return Rule("MatchingAcl", acl, allows=allows)


def _order(acl: Acl) -> tuple[object, ...]:
    """The order in which Kafka looks at the rules of a resource: long names first, and last those for all names."""
    is_for_all = acl.resource_name == _ANYTHING and acl.pattern_type == _LITERAL
    return (
        is_for_all,
        -len(acl.resource_name),
        acl.pattern_type,
        acl.operation,
        acl.principal,
        acl.host,
        acl.permission_type,
    )


def _is_for(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, _ANYBODY) and acl.host in (host, _ANYTHING)


def _is_about(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission_type == _ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())
