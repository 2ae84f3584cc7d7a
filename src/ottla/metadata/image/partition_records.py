"""Replay of the records that create and change a partition."""

from collections.abc import Sequence
from typing import Any

from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.values import DIRECTORY_MIGRATING, LeaderRecovery, Partition
from ottla.protocol.messages.records.metadata_records import PartitionChangeRecord, PartitionRecord

LEADER_UNCHANGED = -2
RECOVERY_UNCHANGED = -1
_RECOVERIES = frozenset(LeaderRecovery)

_new = tuple.__new__
"""Skips the constructor, which is half the cost of a named tuple."""


def new_partition(record: PartitionRecord, shared: dict[Any, Any]) -> Partition:
    """Return the partition of a record. Equal partitions and tuples are one object, by way of `shared`."""
    fields = (
        tuple(record.replicas),
        tuple(record.isr),
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.directories),
        record.leader_recovery_state,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )
    partition: Partition | None = shared.get(fields)
    if partition is None:
        partition = shared[fields] = _share(_new(Partition, fields), shared, record)
    return partition


def _share(partition: Partition, shared: dict[Any, Any], record: PartitionRecord) -> Partition:
    """Validate a partition, and replace its tuples by equal ones of other partitions."""
    replicas, isr, removing, adding, leader, leader_epoch, epoch, directories, recovery, elr, last_elr = partition
    replicas = shared.setdefault(replicas, replicas)
    isr = replicas if isr == replicas else shared.setdefault(isr, isr)
    directories = _directories(directories, len(replicas), record)
    directories = shared.setdefault(directories, directories)
    _check_recovery(recovery)
    fields = (replicas, isr, removing, adding, leader, leader_epoch, epoch, directories, recovery, elr, last_elr)
    return _new(Partition, fields)


def changed_partition(old: Partition, record: PartitionChangeRecord) -> Partition:
    """Return the partition after a change. Fields that the record does not set stay.

    Every change raises the partition epoch. The leader epoch rises if the record names a leader, even the same one or
    none.
    """
    replicas = old.replicas if record.replicas is None else tuple(record.replicas)
    leader, leader_epoch = old.leader, old.leader_epoch
    if record.leader != LEADER_UNCHANGED:
        leader, leader_epoch = record.leader, leader_epoch + 1
    recovery = old.leader_recovery
    if record.leader_recovery_state != RECOVERY_UNCHANGED:
        recovery = record.leader_recovery_state
        _check_recovery(recovery)
    directories = old.directories
    if record.directories is not None or record.replicas is not None:
        new_directories = old.directories if record.directories is None else record.directories
        directories = _directories(new_directories, len(replicas), record)
    changed = (
        replicas,
        old.isr if record.isr is None else tuple(record.isr),
        old.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        old.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        leader,
        leader_epoch,
        old.partition_epoch + 1,
        directories,
        recovery,
        old.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
        old.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
    )
    return _new(Partition, changed)


def without_elr(old: Partition) -> Partition:
    """Return the partition without eligible leader replicas; the same object if it has none."""
    if not old.elr and not old.last_known_elr:
        return old
    return old._replace(elr=(), last_known_elr=(), partition_epoch=old.partition_epoch + 1)


def _directories(directories: Sequence[bytes], replicas: int, record: object) -> tuple[bytes, ...]:
    """Return one directory for each replica. If no directory is known, their number does not matter."""
    if directories.count(DIRECTORY_MIGRATING) == len(directories):
        return (DIRECTORY_MIGRATING,) * replicas
    if len(directories) != replicas:
        raise ReplayError(f"{len(directories)} directories for {replicas} replicas: {record}")
    return tuple(directories)


def _check_recovery(value: int) -> None:
    if value not in _RECOVERIES:
        raise ReplayError(f"no leader recovery state {value}")
