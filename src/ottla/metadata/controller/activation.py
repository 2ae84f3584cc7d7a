"""The first records of a new active controller, and its periodic NoOpRecord."""

from collections.abc import Sequence

from ottla.metadata.controller.config_validation import MIN_ISR
from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.values import ResourceType
from ottla.protocol.messages.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from ottla.protocol.metadata_versions import ELR_VERSION, METADATA_TRANSACTIONS, METADATA_VERSION


def activate(view: ControllerView, bootstrap: Sequence[object], *, in_transaction: bool = False) -> Decision[None]:
    """Write the bootstrap records into an empty log, and abort a metadata transaction that an earlier controller left.

    `in_transaction` says whether the log ends within a metadata transaction. Bootstrap records have version 0, because
    they bring their own metadata.version.
    """
    if view.metadata_version:
        return Decision((_abort(view.metadata_version),) if in_transaction else (), None, atomic=True)
    levels = {record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)}
    assert METADATA_VERSION in levels, "the bootstrap records have a metadata.version"
    records: list[object] = list(bootstrap)
    if levels.get(ELR_VERSION, 0) > 0:
        min_isr = str(view.options.number(MIN_ISR))
        records.append(ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=MIN_ISR, value=min_isr))
    if levels[METADATA_VERSION] < METADATA_TRANSACTIONS:
        assert not in_transaction, "the metadata.version has transactions"
        return Decision(tuple(records), None, atomic=True)
    records = [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]
    if in_transaction:
        records.insert(0, _abort(levels[METADATA_VERSION]))
    return Decision(tuple(records), None)


def write_no_op() -> Decision[None]:
    """Write a NoOpRecord, so that an idle log still advances (metadata.max.idle.interval.ms)."""
    return Decision((NoOpRecord(),), None)


def _abort(metadata_version: int) -> AbortTransactionRecord:
    assert metadata_version >= METADATA_TRANSACTIONS, "the metadata.version has transactions"
    return AbortTransactionRecord(reason="Controller failover")
