"""Every request and response, in every version, against kio: an independent implementation of the same messages."""

import io
import uuid
from datetime import datetime, timedelta
from enum import IntEnum
from importlib import import_module
from random import Random
from typing import Any

import pytest
from bench.harness.message_values import Values
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from ottla.protocol.messages.apis import APIS, Api, module_name
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.shape import Array, Shape, Struct, resolve
from ottla.protocol.wire.types import ZERO_UUID, Fixed

KIND_VERSIONS = [
    (api, kind, version)
    for api in APIS
    for kind in ("request", "response")
    for version in range(api.oldest, api.latest + 1)
    if (api.name, version) != ("ApiVersions", 5)  # of Kafka 4.4; kio knows 4.3
]
EXAMPLES = 12


class KioValues(Values):
    """kio converts codes to enums and times to dates, so these fields need values that it can convert."""

    def fixed(self, kind: Fixed, name: str) -> Any:
        if "error_code" in name and kind.format == "h":
            return self.random.choice((0, 1, 6, 35, -1, 100))
        if kind.format == "i" and ("time" in name or name.endswith("_ms")):
            return self.random.choice((0, 1, 60_000, 1_700_000_000))
        if kind.format == "q" and ("time" in name or name.endswith("_ms")):
            return self.random.choice((0, 1, 1_700_000_000_123))
        return super().fixed(kind, name)


def test_there_are_604_request_and_response_versions() -> None:
    assert len(KIND_VERSIONS) == 604


@pytest.mark.parametrize(
    ("api", "kind", "version"),
    KIND_VERSIONS,
    ids=[f"{api.name}-{kind}-{version}" for api, kind, version in KIND_VERSIONS],
)
@settings(max_examples=EXAMPLES, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_bytes_and_values_equal_kios(api: Api, kind: str, version: int, random: Random) -> None:
    ours = getattr(api, kind)
    theirs = getattr(import_module(f"kio.schema.{module_name(api.name)}.v{version}.{kind}"), ours.__name__)
    message = KioValues(random, unknown_tags=False).message(ours, version)
    written = encode(message, version)

    read_by_kio, size = entity_reader(theirs)(written, 0)
    assert size == len(written)
    assert plain_of_kios(read_by_kio) == plain_of_ours(message, resolve(schema_of(ours), version))

    written_by_kio = io.BytesIO()
    entity_writer(theirs)(written_by_kio, read_by_kio)
    assert written_by_kio.getvalue() == written
    assert decode(ours, version, written_by_kio.getvalue()) == message


def plain_of_ours(value: Any, shape: Shape, *, optional: bool = False) -> Any:
    """Convert a value to dicts, lists and numbers, with the version's fields and defaults of absent tagged structs."""
    if isinstance(shape, Struct) and (value is not None or optional):
        value = shape.cls() if value is None else value
        return {
            same_name(member.name): plain_of_ours(getattr(value, member.name), member.shape, optional=member.optional)
            for member in (*shape.plain, *shape.tagged)
        }
    if isinstance(shape, Array) and value is not None:
        return [plain_of_ours(item, shape.element) for item in value]
    if isinstance(shape, Fixed) and shape.name == "uuid" and value == ZERO_UUID:
        return None  # as kio reads it
    return value


def same_name(name: str) -> str:
    """kio names times without their unit and knows `id_` and `k_raft`."""
    return name.removesuffix("_ms").removesuffix("_").replace("k_raft", "kraft")


def plain_of_kios(value: Any) -> Any:
    match value:
        case IntEnum():
            return int(value)
        case timedelta():
            return round(value.total_seconds() * 1000)
        case datetime():
            return round(value.timestamp() * 1000)
        case uuid.UUID():
            return value.bytes
        case tuple():
            return [plain_of_kios(item) for item in value]
        case _ if hasattr(value, "__dataclass_fields__"):
            return {same_name(name): plain_of_kios(getattr(value, name)) for name in value.__slots__}
        case _:
            return value
