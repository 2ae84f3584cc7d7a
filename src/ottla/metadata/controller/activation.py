"""What a controller writes first when it becomes the active one."""

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
    """In an empty log the records with which the cluster was formatted; in any log the end of what a former controller
    left half done. `in_transaction`: the log ends within a metadata transaction.

    The bootstrap records bring their own metadata.version: they are all of version 0.
    """
    if view.metadata_version:
        return Decision((_abort(view.metadata_version),) if in_transaction else (), None, atomic=True)
    levels = {each.name: each.feature_level for each in bootstrap if isinstance(each, FeatureLevelRecord)}
    assert METADATA_VERSION in levels, "the bootstrap records name no metadata.version"
    records: list[object] = list(bootstrap)
    if levels.get(ELR_VERSION, 0) > 0:
        least = str(view.options.number(MIN_ISR))
        records.append(ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=MIN_ISR, value=least))
    if levels[METADATA_VERSION] < METADATA_TRANSACTIONS:
        assert not in_transaction, "a transaction in a log whose metadata.version has none"
        return Decision(tuple(records), None, atomic=True)
    records = [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]
    if in_transaction:
        records.insert(0, _abort(levels[METADATA_VERSION]))
    return Decision(tuple(records), None)


def write_no_op() -> Decision[None]:
    """Written now and then, so that all see the log go on (metadata.max.idle.interval.ms)."""
    return Decision((NoOpRecord(),), None)


def _abort(metadata_version: int) -> AbortTransactionRecord:
    assert metadata_version >= METADATA_TRANSACTIONS, "a transaction in a log whose metadata.version has none"
    return AbortTransactionRecord(reason="Controller failover")
