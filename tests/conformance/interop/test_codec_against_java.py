"""Every message of the table against Kafka's own Java classes: the same bytes, and the same values by name."""

import base64
import math
from random import Random
from typing import Any

import pytest
from bench.harness.message_values import Values
from bench.harness.protocol_table import cases, declared
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
for _name, _version in cases():
    VERSIONS.setdefault(_name, []).append(_version)


@pytest.mark.parametrize("name", sorted(VERSIONS))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=True))
def test_bytes_and_values_equal_javas(java_peer: JavaPeer, name: str, random: Random) -> None:
    cls = declared()[name]
    values = Values(random)
    versions = VERSIONS[name]
    made = []
    for turn in range(VALUES_A_MESSAGE // EXAMPLES):
        version = versions[turn % len(versions)]
        message = values.message(cls, version)
        made.append((message, version, encode(message, version)))
    for (message, version, written), answer in zip(
        made, java_peer.roundtrip([(name, version, written) for _, version, written in made]), strict=True
    ):
        assert answer.error is None, f"v{version} {message}: {answer.error}"
        assert answer.data == written, f"v{version} {message}"
        assert answer.value == java_json(message, resolve(schema_of(cls), version)), f"v{version} {message}"
        assert decode(cls, version, answer.data) == message


@pytest.mark.parametrize("name", sorted(VERSIONS))
def test_defaults_equal_javas(java_peer: JavaPeer, name: str) -> None:
    cls = declared()[name]
    versions = VERSIONS[name]
    for version, theirs in zip(versions, java_peer.defaults([(name, version) for version in versions]), strict=True):
        assert theirs.error is None
        assert encode(cls(), version) == theirs.data, f"v{version}"


def java_json(value: Any, shape: Shape) -> Any:
    """What Kafka's JSON converters make of a value."""
    if value is None:
        return None
    match shape:
        case Struct():
            shown = {}
            for member in shape.plain:
                shown.update(java_field(value, member))
            for member in shape.tagged:
                if getattr(value, member.name) != member.field.make_default():
                    shown.update(java_field(value, member))
            return shown
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
