"""The effect on partitions when a broker is fenced, unfenced, restarted, unregistered or shut down."""

from collections.abc import Iterable

from ottla.metadata.controller.partition_change_builder import Election, MayLead, Target, build_partition_change
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.image import TopicPartition
from ottla.metadata.image.values import Broker
from ottla.protocol.messages.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)

FENCE = 1
UNFENCE = -1
CONTROLLED_SHUTDOWN = 1


def handle_broker_fenced(view: ControllerView, broker: Broker) -> list[object]:
    """Fence a broker: it leads nothing, and leaves each ISR of which it is not the last member."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
    return [*remove_from_isr(view, broker.id, view.image.partitions_in_isr(broker.id)), change]


def handle_broker_unfenced(view: ControllerView, broker: Broker) -> list[object]:
    """Unfence a broker: partitions without a leader may elect it."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)
    may_lead = (view.active_brokers | {broker.id}).__contains__
    return [change, *_changes(view, view.image.partitions_without_leader(), may_lead=may_lead)]


def handle_controlled_shutdown(view: ControllerView, broker: Broker) -> list[object]:
    """Start a controlled shutdown: other leaders take over where there are any, while the broker still serves."""
    records: list[object] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=CONTROLLED_SHUTDOWN
            )
        )
    return [*records, *remove_from_isr(view, broker.id, view.image.partitions_in_isr(broker.id))]


def handle_broker_unregistered(view: ControllerView, broker: Broker) -> list[object]:
    """Unregister a broker. Its replicas stay assigned until they are reassigned."""
    held = [*view.image.partitions_in_isr(broker.id), *view.image.partitions_in_elr(broker.id)]
    return [
        *remove_from_isr(view, broker.id, held),
        UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch),
    ]


def handle_broker_restarted(view: ControllerView, broker_id: int, *, clean: bool) -> list[PartitionChangeRecord]:
    """Register a new incarnation of a broker. After an unclean shutdown it may lack acknowledged records (KIP-966)."""
    image = view.image
    if clean or not view.elr_enabled:
        return remove_from_isr(view, broker_id, image.partitions_in_isr(broker_id))
    held = [*image.partitions_in_isr(broker_id), *image.partitions_in_elr(broker_id)]
    return remove_from_isr(view, broker_id, held, unclean=True)


def handle_directories_offline(view: ControllerView, broker: Broker, offline: Iterable[bytes]) -> list[object]:
    """Take the replicas in failed log directories out of their ISRs."""
    lost = {*offline} & {*broker.log_dirs}
    if not lost:
        return []
    held = (
        topic_partition
        for topic_partition in view.image.partitions_with_replica(broker.id)
        if topic_partition.partition.directory_of(broker.id) in lost
    )
    online = [directory for directory in broker.log_dirs if directory not in lost]
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=online)
    return [*remove_from_isr(view, broker.id, held), change]


def handle_directories_cordoned(broker: Broker, cordoned: list[bytes] | None) -> list[object]:
    """Record which directories take no new replicas (KIP-1066). None leaves them unchanged."""
    current = broker.cordoned_log_dirs
    if cordoned is None or (current is not None and {*current} == {*cordoned}):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=sorted({*cordoned})
        )
    ]


def remove_from_isr(
    view: ControllerView, broker_id: int, held: Iterable[TopicPartition], *, unclean: bool = False
) -> list[PartitionChangeRecord]:
    """Remove a broker from the ISR and the leadership of these partitions."""
    may_lead = (view.active_brokers - {broker_id}).__contains__
    return _changes(view, held, may_lead=may_lead, leaving=broker_id, unclean_shutdown=broker_id if unclean else None)


def _changes(
    view: ControllerView,
    partitions: Iterable[TopicPartition],
    *,
    may_lead: MayLead,
    leaving: int | None = None,
    unclean_shutdown: int | None = None,
) -> list[PartitionChangeRecord]:
    records = []
    for topic_partition in partitions:
        isr = [replica for replica in topic_partition.partition.isr if replica != leaving]
        target = Target(isr=isr, unclean_shutdown=unclean_shutdown)
        election = Election.UNCLEAN if view.allows_unclean_election(topic_partition.topic) else Election.ONLINE
        record = build_partition_change(view, topic_partition, target, election=election, may_lead=may_lead)
        if record is not None:
            records.append(record)
    return records
