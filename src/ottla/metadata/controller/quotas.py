"""AlterClientQuotas: quotas of users, client ids and IP addresses."""

from collections.abc import Container, Sequence

from ottla.metadata.controller.decision import Decision, decide_atomically
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.values import quota_entity
from ottla.protocol.errors import ApiError, InvalidRequest
from ottla.protocol.messages.records.metadata_records import ClientQuotaRecord, EntityData
from ottla.protocol.messages.rpc import alter_client_quotas as wire

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_CLIENT_KEYS = {
    "producer_byte_rate": (1 << 63) - 1,
    "consumer_byte_rate": (1 << 63) - 1,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""The quotas, each with its maximum if it must be a whole number."""
_IP_KEYS = {"connection_creation_rate": (1 << 31) - 1}


def alter_client_quotas(
    view: ControllerView, request: wire.AlterClientQuotasRequest, *, unknown_hosts: Container[str] = ()
) -> Decision[wire.AlterClientQuotasResponse]:
    """Alter the quotas of each entity atomically, or answer it with its own error.

    `unknown_hosts` has the hosts of the request that do not resolve: a decision does no I/O. An entity that occurs more
    than once gets one answer, an error, but its first entry is in force.
    """
    records: list[object] = []
    answers: dict[frozenset[tuple[str, str | None]], wire.ResponseEntryData] = {}
    for entry in request.entries:
        named = {part.entity_type: part for part in entry.entity}  # of a repeated type, the last one counts
        entity = frozenset((part.entity_type, part.entity_name) for part in named.values())
        is_first = entity not in answers
        answer = answers.setdefault(entity, wire.ResponseEntryData(entity=[*named.values()], error_message=None))
        try:
            if not is_first:
                raise InvalidRequest(f"Ignoring duplicate entity {dict(sorted(entity))}")
            records += _alter(view, entry, unknown_hosts)
        except ApiError as error:  # an invalid entity fails alone
            answer.error_code, answer.error_message = error.code, error.message
    decision = decide_atomically(records, wire.AlterClientQuotasResponse(entries=[*answers.values()]))
    return decision.without_records() if request.validate_only else decision


def _alter(view: ControllerView, entry: wire.EntryData, unknown_hosts: Container[str]) -> list[ClientQuotaRecord]:
    entity = _entity(entry.entity)
    keys = _keys(entity, unknown_hosts)
    current = view.image.quota(quota_entity(entity))
    new_values = {op.key: None if op.remove else op.value for op in entry.ops}
    if len(new_values) < len(entry.ops):
        raise InvalidRequest(f"Duplicate quota keys for the entity {entity}")
    records = []
    for key, value in new_values.items():
        if value is not None:
            _check_value(keys, key, value)
        if value == current.get(key):
            continue
        records.append(
            ClientQuotaRecord(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                key=key,
                value=0.0 if value is None else value,
                remove=value is None,
            )
        )
    return records


def _entity(parts: Sequence[wire.EntityData]) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for part in parts:
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise InvalidRequest(f"Empty {part.entity_type} not supported")
        entity[part.entity_type] = part.entity_name
    if not entity:
        raise InvalidRequest("Invalid empty client quota entity")
    return entity


def _keys(entity: dict[str, str | None], unknown_hosts: Container[str]) -> dict[str, int | None]:
    if IP not in entity:
        return _CLIENT_KEYS
    if len(entity) > 1:
        raise InvalidRequest("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    host = entity[IP]
    if host is not None and host in unknown_hosts:
        raise InvalidRequest(f"{host} is not a valid IP or resolvable host.")
    return {**_IP_KEYS}


def _check_value(keys: dict[str, int | None], key: str, value: float) -> None:
    if key not in keys:
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not value > 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    maximum = keys[key]
    if maximum is None:
        return
    if value > maximum:
        raise InvalidRequest(f"Proposed value for {key} is too large for {'a LONG' if maximum >> 32 else 'an INT'}.")
    if value % 1.0 > 1e-6:
        raise InvalidRequest(f"{key} cannot be a fractional value.")
