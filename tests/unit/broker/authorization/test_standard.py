"""Decisions of the standard authorizer, compared with a simple model, and special cases."""

from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.broker.authorization.actions import Action, Operation, ResourceType
from ottla.broker.authorization.standard import StandardAuthorizer, super_users
from ottla.metadata.image.values import Acl

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3


class Client(NamedTuple):
    principal: str = "User:alice"
    address: str = "10.0.0.1"


ALICE = Client()


class Request(NamedTuple):
    """The request of a client."""

    client: Client = ALICE
    api_name: str = "Fetch"


def rule(
    name: str,
    operation: int = Operation.READ,
    permission: int = ALLOW,
    *,
    pattern: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: int = ResourceType.TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def authorizer(*rules: Acl, **settings: bool) -> StandardAuthorizer:
    standard = StandardAuthorizer(super_users=frozenset({"User:root"}), **settings)
    for number, acl in enumerate(rules):
        standard.add(number.to_bytes(16), acl)
    return standard


def is_allowed(
    standard: StandardAuthorizer,
    operation: Operation,
    name: str,
    client: Client = ALICE,
    kind: ResourceType = ResourceType.TOPIC,
) -> bool:
    (result,) = standard.authorize(Request(client), [Action(operation, kind, name)])
    return result


names = st.sampled_from(["*", "a", "ab", "abc", "abd", "b", "ba"])
acls = st.builds(
    Acl,
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    resource_name=names,
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    operation=st.sampled_from(
        [Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS]
    ),
    permission_type=st.sampled_from([DENY, ALLOW, ALLOW]),
)
actions = st.builds(
    Action,
    operation=st.sampled_from([Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.WRITE]),
    kind=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    name=names,
)


def naive(rules: list[Acl], client: Client, action: Action, default: bool) -> bool:
    """A simple model: read the ACLs one by one as Kafka documents them."""
    concerning = [
        acl
        for acl in rules
        if acl.resource_type == action.kind
        and (
            action.name.startswith(acl.resource_name)
            if acl.pattern_type == PREFIXED
            else acl.resource_name in ("*", action.name)
        )
    ]
    if not concerning:
        return default
    for_client = [
        acl for acl in concerning if acl.principal in ("User:*", client.principal) and acl.host in ("*", client.address)
    ]
    if any(acl.permission_type == DENY and acl.operation in (action.operation, Operation.ALL) for acl in for_client):
        return False
    enough: set[int] = {Operation.ALL, action.operation}
    if action.operation == Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if action.operation == Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(acl.permission_type == ALLOW and acl.operation in enough for acl in for_client)


@given(st.lists(acls, max_size=6), st.lists(actions, min_size=1, max_size=4), st.booleans(), st.data())
def test_decisions_agree_with_a_simple_model(
    rules: list[Acl], asked: list[Action], default: bool, data: st.DataObject
) -> None:
    standard = authorizer(*rules, allow_without_rules=default)
    client = Client()
    assert standard.authorize(Request(client), asked) == [naive(rules, client, action, default) for action in asked]
    # Removed ACLs have no effect.
    removed = data.draw(st.sets(st.integers(0, max(len(rules) - 1, 0)))) if rules else set()
    for number in removed:
        standard.remove(number.to_bytes(16), rules[number])
    left = [acl for number, acl in enumerate(rules) if number not in removed]
    assert standard.authorize(Request(client), asked) == [naive(left, client, action, default) for action in asked]


@given(st.lists(acls, max_size=6), st.booleans())
@example([rule("*", Operation.ALL, pattern=PREFIXED), rule("*", Operation.READ, DENY)], False)
def test_writing_anything_is_allowed_if_writing_some_name_is(rules: list[Acl], default: bool) -> None:
    """Candidates are the names of the ACLs, and longer ones."""
    standard = authorizer(*rules, allow_without_rules=default)
    names = [acl.resource_name for acl in rules]
    # An ACL for names that begin with an asterisk is not an ACL for all names.
    candidates = ["hardcode", *(name for name in names if name != "*"), *(f"{name}!" for name in names)]
    written = any(is_allowed(standard, Operation.WRITE, name) for name in candidates)
    if standard.authorize_any(Request(), Operation.WRITE, ResourceType.TOPIC):
        assert written or default
    else:
        assert not is_allowed(standard, Operation.WRITE, "hardcode")


def test_super_users_may_do_anything() -> None:
    standard = authorizer(rule("*", Operation.ALL, DENY, principal="User:*"))
    assert is_allowed(standard, Operation.DELETE, "t", Client("User:root"))
    assert not is_allowed(standard, Operation.DELETE, "t")
    assert standard.authorize_any(Request(Client("User:root")), Operation.WRITE, ResourceType.TOPIC)


def test_denying_read_does_not_deny_describe() -> None:
    standard = authorizer(rule("t", Operation.READ, DENY), rule("t", Operation.WRITE))
    assert is_allowed(standard, Operation.DESCRIBE, "t")
    assert not is_allowed(standard, Operation.READ, "t")


def test_an_acl_that_was_added_twice_applies_until_both_are_removed() -> None:
    standard = authorizer(rule("t"), rule("t"))
    standard.remove((0).to_bytes(16), rule("t"))
    assert is_allowed(standard, Operation.READ, "t")
    standard.remove((1).to_bytes(16), rule("t"))
    assert not is_allowed(standard, Operation.READ, "t")


def test_a_change_clears_the_remembered_decisions() -> None:
    standard = authorizer(rule("t"))
    for number in range(20_000):
        assert not is_allowed(standard, Operation.READ, f"other-{number}")
    standard.add(b"x" * 16, rule("other-", pattern=PREFIXED))
    assert is_allowed(standard, Operation.READ, "other-5")


def test_super_users_are_separated_by_semicolons() -> None:
    assert super_users(" User:a ; User:CN=x,OU=y;") == {"User:a", "User:CN=x,OU=y"}
    with pytest.raises(ValueError, match="alice"):
        super_users("User:a;alice")
