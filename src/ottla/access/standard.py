"""Kafka's StandardAuthorizer: access rules from the cluster's metadata decide.

Rules are for one name, for all names that begin alike, or for all (`*`). A rule that denies counts for more than any
that allows. Who may read, write, delete or alter may also describe; who may alter settings may also see them; to be
denied one of these denies no other. Without any rule that concerns a resource, the default decides.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from ottla.access.actions import Action, Kind, Operation, Who
from ottla.image.values import Acl

_LITERAL, _PREFIXED = 3, 4
_DENY, _ALLOW = 2, 3
_ANYTHING: Final = "*"
_ANYBODY: Final = "User:*"
_MOST_REMEMBERED: Final = 10_000

_Rules: TypeAlias = dict[tuple[int, str], dict[bytes, Acl]]
"""By the kind and name of the resource, then by the rule's id."""
_NO_RULES: Final[dict[bytes, Acl]] = {}

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
        self._allow_without_rules = allow_without_rules
        self._literal: _Rules = {}
        self._prefixed: _Rules = {}
        self._lengths: dict[int, tuple[int, ...]] = {}
        """How long the prefixes are, for each kind of resource: few different lengths, however many rules."""
        self._remembered: dict[tuple[str, str, Action], bool] = {}

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

    def authorize(self, who: Who, actions: Sequence[Action]) -> list[bool]:
        """Whether each of the actions may be done."""
        principal, host = who.principal, who.address
        if principal in self._super_users:
            return [True] * len(actions)
        results = []
        for action in actions:
            key = (principal, host, action)
            result = self._remembered.get(key)
            if result is None:
                result = self._decide(principal, host, action)
                if len(self._remembered) >= _MOST_REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = result
            results.append(result)
        return results

    def authorize_any(self, who: Who, operation: Operation, kind: Kind) -> bool:
        """Whether some name is allowed that no rule denies; nobody need have the name."""
        if self.authorize(who, [Action(operation, kind, "hardcode")])[0]:
            return True
        denied: dict[int, set[str]] = {_LITERAL: set(), _PREFIXED: set()}
        allowed: dict[int, set[str]] = {_LITERAL: set(), _PREFIXED: set()}
        for acl in self._all_of(kind):
            if not _is_for(acl, who.principal, who.address) or acl.operation not in (operation, Operation.ALL):
                continue
            (denied if acl.permission_type == _DENY else allowed)[acl.pattern_type].add(acl.resource_name)
        if _ANYTHING in denied[_LITERAL]:
            return False
        if _ANYTHING in allowed[_LITERAL]:
            return True
        candidates = (allowed[_LITERAL] - denied[_LITERAL]) | allowed[_PREFIXED]
        return any(not any(name.startswith(prefix) for prefix in denied[_PREFIXED]) for name in candidates)

    def _decide(self, principal: str, host: str, action: Action) -> bool:
        concerned = is_allowed = False
        for acl in self._concerning(action.kind, action.name):
            concerned = True
            if _is_for(acl, principal, host) and _is_about(acl, action.operation):
                if acl.permission_type == _DENY:
                    return False
                is_allowed = True
        return is_allowed if concerned else self._allow_without_rules

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
        self._remembered.clear()
        kind = acl.resource_type
        if acl.pattern_type == _PREFIXED:
            self._lengths[kind] = tuple(sorted({len(name) for of_kind, name in self._prefixed if of_kind == kind}))


def _is_for(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, _ANYBODY) and acl.host in (host, _ANYTHING)


def _is_about(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission_type == _ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())
