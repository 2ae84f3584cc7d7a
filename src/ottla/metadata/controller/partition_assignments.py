"""Replicas for partitions that are to be made, given by hand or placed."""

from collections.abc import Sequence

from ottla.metadata.controller.view import ControllerView
from ottla.protocol.errors import InvalidReplicaAssignment
from ottla.protocol.messages.records.metadata_records import PartitionRecord


def validate_manual_assignment(
    view: ControllerView, replicas: Sequence[int], replication_factor: int | None = None
) -> None:
    """Whether replicas given by hand can be: some, of registered brokers, each once, and as many as elsewhere."""
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
    """Those replicas of a new partition that are in sync from the start."""
    return [replica for replica in replicas if view.is_active(replica)]


def validate_manual_isr(view: ControllerView, replicas: Sequence[int], number: int) -> None:
    if not active_replicas(view, replicas):
        raise InvalidReplicaAssignment(
            f"All brokers specified in the manual partition assignment for partition {number} are fenced or in"
            " controlled shutdown."
        )


class PartitionRecords:
    """Makes the records of new partitions. Most have the same replicas as others, and then share what follows from
    them."""

    def __init__(self, view: ControllerView) -> None:
        self._view = view
        self._known: dict[tuple[int, ...], tuple[list[int], list[int], list[bytes]]] = {}

    def build(self, topic_id: bytes, number: int, replicas: tuple[int, ...]) -> PartitionRecord:
        """A new partition: all active replicas are in sync, as there is nothing to have, and the first of them
        leads."""
        known = self._known.get(replicas)
        if known is None:
            known = self._known[replicas] = self._values_for(replicas)
        brokers, isr, directories = known
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
        assert isr, "an assignment by hand is checked, and one by chance begins with an active broker"
        return list(replicas), isr, directories
