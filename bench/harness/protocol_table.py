"""Kafka's table of messages, and which declared class each of its names is."""

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ottla.protocol.messages.apis import APIS
from ottla.protocol.wire.declare import schema_of

TABLE = Path(__file__).parent / "kafka-4.3.1-messages.json"
STORED_MODULES = (
    "headers",
    "consumer_protocol",
    "principal",
    "records.raft_records",
    "records.metadata_records",
    "records.group_records",
    "records.consumer_group_records",
    "records.share_group_records",
    "records.streams_group_records",
    "records.transaction_records",
    "records.share_state_records",
)
RENAMED = {
    "RequestHeader": "RequestHeaderData",
    "ResponseHeader": "ResponseHeaderData",
    "ControlRecordKey": "ControlRecordTypeSchema",
    "QuorumState": "QuorumStateData",
    "DefaultPrincipal": "DefaultPrincipalData",
}
LATER_VERSIONS = {"ApiVersionsRequestData": 5, "ApiVersionsResponseData": 5}
"""Declared ahead of the table: of Kafka 4.4."""


@cache
def table() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(TABLE.read_text())
    return loaded


@cache
def declared() -> dict[str, type]:
    """Every message by Kafka's name of it."""
    found = {}
    for api in APIS:
        found[f"{api.name}RequestData"] = api.request
        found[f"{api.name}ResponseData"] = api.response
    for name in STORED_MODULES:
        module = import_module(f"ottla.protocol.messages.{name}")
        for cls in vars(module).values():
            if isinstance(cls, type) and cls.__module__ == module.__name__:
                schema = schema_of(cls)
                if schema.versions.last >= schema.versions.first:  # a struct has no versions of its own
                    found[RENAMED.get(schema.name, schema.name)] = cls
    return found


def cases() -> list[tuple[str, int]]:
    """Every message of the table in every version, by Kafka's name."""
    names = []
    for message in table()["messages"]:
        first, _, last = message["versions"].partition("-")
        names += [(message["name"], version) for version in range(int(first), int(last or first) + 1)]
    return names
