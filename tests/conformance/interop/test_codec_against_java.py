"""Every message gives the same bytes and the same named values as Kafka's Java classes."""

import base64
import math
from random import Random
from typing import Any

import pytest
from bench.harness.message_values import Values
from bench.harness.protocol_table import message_classes, message_versions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.shape import Array, Blob, Member, Shape, Struct, resolve
from ottla.protocol.wire.types import Fixed
from tests.support.java_peer import JavaPeer

VALUES_A_MESSAGE = 300
EXAMPLES = 5
VERSIONS: dict[str, list[int]] = {}
for _name, _version in message_versions():
    VERSIONS.setdefault(_name, []).append(_version)


@pytest.mark.parametrize("name", sorted(VERSIONS))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=True))
def test_bytes_and_values_equal_those_of_java(java_peer: JavaPeer, name: str, random: Random) -> None:
    cls = message_classes()[name]
    values = Values(random)
    versions = VERSIONS[name]
    encoded = []
    for index in range(VALUES_A_MESSAGE // EXAMPLES):
        version = versions[index % len(versions)]
        message = values.message(cls, version)
        encoded.append((message, version, encode(message, version)))
    for (message, version, written), answer in zip(
        encoded, java_peer.roundtrip([(name, version, written) for _, version, written in encoded]), strict=True
    ):
        assert answer.error is None, f"v{version} {message}: {answer.error}"
        assert answer.data == written, f"v{version} {message}"
        assert answer.value == java_json(message, resolve(schema_of(cls), version)), f"v{version} {message}"
        assert decode(cls, version, answer.data) == message


@pytest.mark.parametrize("name", sorted(VERSIONS))
def test_defaults_equal_those_of_java(java_peer: JavaPeer, name: str) -> None:
    cls = message_classes()[name]
    versions = VERSIONS[name]
    for version, theirs in zip(versions, java_peer.defaults([(name, version) for version in versions]), strict=True):
        assert theirs.error is None
        assert encode(cls(), version) == theirs.data, f"v{version}"


def java_json(value: Any, shape: Shape) -> Any:
    """Return a value as Kafka's JSON converters show it."""
    if value is None:
        return None
    match shape:
        case Struct():
            fields = {}
            for member in shape.plain:
                fields.update(java_field(value, member))
            for member in shape.tagged:
                if getattr(value, member.name) != member.field.make_default():
                    fields.update(java_field(value, member))
            return fields
        case Array():
            return [java_json(item, shape.element) for item in value]
        case Blob():
            return base64.b64encode(value).decode()
        case Fixed() if shape.name == "uuid":
            return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
        case Fixed() if shape.name == "float64" and math.isinf(value):
            return "Infinity"
        case _:
            return value


def java_field(value: Any, member: Member) -> dict[str, Any]:
    first, *rest = member.name.split("_")
    name = (first + "".join(word.capitalize() for word in rest)).replace("kraft", "kRaft")
    held = getattr(value, member.name)
    if isinstance(member.shape, Blob) and member.shape.records and held is not None:
        return {f"{name}SizeInBytes": len(held)}
    return {name: java_json(held, member.shape)}
