"""Kafka's table of messages, and the class that declares each of them."""

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
"""Versions of Kafka 4.4, which the table does not contain yet."""


@cache
def message_table() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(TABLE.read_text())
    return loaded


@cache
def message_classes() -> dict[str, type]:
    """Return the class of each message by Kafka's name."""
    classes: dict[str, type] = {}
    for api in APIS:
        classes[f"{api.name}RequestData"] = api.request
        classes[f"{api.name}ResponseData"] = api.response
    for name in STORED_MODULES:
        module = import_module(f"ottla.protocol.messages.{name}")
        for cls in vars(module).values():
            if isinstance(cls, type) and cls.__module__ == module.__name__:
                schema = schema_of(cls)
                if schema.versions.last >= schema.versions.first:  # a struct has no versions
                    classes[RENAMED.get(schema.name, schema.name)] = cls
    return classes


def message_versions() -> list[tuple[str, int]]:
    """Return the name of each message of the table with each of its versions."""
    names = []
    for message in message_table()["messages"]:
        first, _, last = message["versions"].partition("-")
        names += [(message["name"], version) for version in range(int(first), int(last or first) + 1)]
    return names
