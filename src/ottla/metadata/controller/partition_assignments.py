"""Replica assignments of new partitions: validating manual ones, and building partition records."""

from collections.abc import Sequence

from ottla.metadata.controller.view import ControllerView
from ottla.protocol.errors import InvalidReplicaAssignment
from ottla.protocol.messages.records.metadata_records import PartitionRecord


def validate_manual_assignment(
    view: ControllerView, replicas: Sequence[int], replication_factor: int | None = None
) -> None:
    """Raise unless a manual assignment is valid: registered brokers, each once, as many as in other partitions."""
    if not replicas:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    seen = set()
    for broker_id in sorted(replicas):
        if broker_id not in view.image.brokers:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if broker_id in seen:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
        seen.add(broker_id)
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not"
            f" consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def active_replicas(view: ControllerView, replicas: Sequence[int]) -> list[int]:
    """Return the initial ISR of a new partition: its replicas on active brokers."""
    return [replica for replica in replicas if view.is_active(replica)]


def validate_manual_isr(view: ControllerView, replicas: Sequence[int], number: int) -> None:
    if not active_replicas(view, replicas):
        raise InvalidReplicaAssignment(
            f"All brokers specified in the manual partition assignment for partition {number} are fenced or in"
            " controlled shutdown."
        )


class PartitionRecords:
    """Builds the records of new partitions. Partitions with the same replicas share their lists."""

    def __init__(self, view: ControllerView) -> None:
        self._view = view
        self._values: dict[tuple[int, ...], tuple[list[int], list[int], list[bytes]]] = {}

    def build(self, topic_id: bytes, number: int, replicas: tuple[int, ...]) -> PartitionRecord:
        """Return the record of a new partition: all active replicas are in sync, and the first of them leads."""
        values = self._values.get(replicas)
        if values is None:
            values = self._values[replicas] = self._values_for(replicas)
        brokers, isr, directories = values
        return PartitionRecord(
            topic_id=topic_id,
            partition_id=number,
            replicas=brokers,
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=directories,
        )

    def _values_for(self, replicas: tuple[int, ...]) -> tuple[list[int], list[int], list[bytes]]:
        view = self._view
        directories = [view.default_directory(replica) for replica in replicas] if view.assigns_directories else []
        isr = active_replicas(view, replicas)
        assert isr, "manual assignments are validated, and placed ones start with an active broker"
        return list(replicas), isr, directories
