"""The declarations equal Kafka's table: every field, in wire order, with type, versions, tag and default."""

from typing import Any

import pytest
from bench.harness.protocol_table import LATER_VERSIONS, message_classes, message_table, message_versions

from ottla.protocol.messages.apis import APIS, BY_KEY
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.shape import Array, Blob, Member, Shape, Struct, Text, resolve
from ottla.protocol.wire.types import ZERO_UUID, Fixed

MESSAGES = {message["name"]: message for message in message_table()["messages"]}
RETIRED = {4, 5, 6, 7}


def test_every_message_of_the_table_is_declared() -> None:
    assert set(message_classes()) == set(MESSAGES)
    assert len(MESSAGES) == 267


def test_the_apis_are_those_of_the_table() -> None:
    rows = {row["key"]: row for row in message_table()["apis"] if row["key"] not in RETIRED}
    assert set(rows) == set(BY_KEY)
    for api in APIS:
        row = rows[api.key]
        assert api.name == row["name"]
        assert (api.oldest, api.latest_stable) == (row["oldest"], row["latest_stable"])
        assert api.latest == LATER_VERSIONS.get(f"{api.name}RequestData", row["latest"])
        assert (api.forwardable, api.cluster_action) == (row["forwardable"], row["cluster_action"])
        assert {name for name in ("BROKER", "CONTROLLER") if name in row["listeners"]} == {
            listener.name for listener in api.listeners
        }


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_versions_and_keys_are_those_of_the_table(name: str) -> None:
    schema, row = schema_of(message_classes()[name]), MESSAGES[name]
    first, last = bounds(row["versions"])
    assert (schema.versions.first, schema.versions.last) == (first, LATER_VERSIONS.get(name, last))
    assert schema.key == row["key"]
    flexible = [version for version in range(first, last + 1) if version in schema.flexible]
    assert flexible == (list(range(bounds(row["flexible"])[0], last + 1)) if row["flexible"] else [])


@pytest.mark.parametrize(("name", "version"), message_versions())
def test_fields_are_those_of_the_table(name: str, version: int) -> None:
    assert_fields(resolve(schema_of(message_classes()[name]), version), MESSAGES[name]["fields"], version, name)


def assert_fields(shape: Struct, rows: list[dict[str, Any]], version: int, path: str) -> None:
    present = [row for row in rows if within(version, row["versions"])]
    plain = [row for row in present if "tag" not in row]
    tagged = sorted((row for row in present if "tag" in row), key=lambda row: int(row["tag"]))
    assert [member.name for member in shape.plain] == [row["name"] for row in plain], path
    assert [(member.name, member.tag) for member in shape.tagged] == [(r["name"], r["tag"]) for r in tagged], path
    for member, row in zip((*shape.plain, *shape.tagged), (*plain, *tagged), strict=True):
        where = f"{path}.{row['name']}"
        assert type_name(member.shape) == ("struct" if "fields" in row else row["type"].removeprefix("[]")), where
        assert member.nullable == within(version, row.get("nullable", "")), where
        assert default_of(member) == expected_default(member, row), where
        inner = member.shape.element if isinstance(member.shape, Array) else member.shape
        assert isinstance(member.shape, Array) == row["type"].startswith("[]"), where
        if "fields" in row:
            assert isinstance(inner, Struct), where
            assert_fields(inner, row["fields"], version, where)


def type_name(shape: Shape) -> str:
    match shape:
        case Fixed():
            return shape.name
        case Text():
            return "string"
        case Blob():
            return "records" if shape.records else "bytes"
        case Array():
            return type_name(shape.element)
        case Struct():
            return "struct"


def default_of(member: Member) -> Any:
    value = member.field.make_default()
    return "struct" if hasattr(value, "__schema__") else value


def expected_default(member: Member, row: dict[str, Any]) -> Any:
    if "default" in row:
        return row["default"]
    match member.shape:
        case Array():
            return []
        case Struct():
            return None if member.optional else "struct"
        case Blob():
            return b""
        case _:
            return ZERO_UUID


def bounds(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def within(version: int, text: str) -> bool:
    return bool(text) and bounds(text)[0] <= version <= bounds(text)[1]
