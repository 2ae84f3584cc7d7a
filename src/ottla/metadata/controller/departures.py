"""What happens to partitions when a broker comes or goes."""

from collections.abc import Iterable

from ottla.metadata.controller.partition_change import Election, MayLead, Target, change_partition
from ottla.metadata.controller.view import View
from ottla.metadata.image.image import Placed
from ottla.metadata.image.values import Broker
from ottla.protocol.messages.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)

FENCE = 1
UNFENCE = -1
SHUTTING_DOWN = 1


def fence(view: View, broker: Broker) -> list[object]:
    """A broker is out of reach: nothing is led by it, and it is in no ISR, but for being the last of one."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
    return [*leave(view, broker.id, view.image.partitions_in_isr(broker.id)), change]


def unfence(view: View, broker: Broker) -> list[object]:
    """A broker is back: partitions without a leader may find one in it."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)
    may_lead = (view.active_brokers | {broker.id}).__contains__
    return [change, *_changes(view, view.image.partitions_without_leader(), may_lead=may_lead)]


def begin_shutdown(view: View, broker: Broker) -> list[object]:
    """A broker asks to go: its partitions get other leaders, where there are any, while it still serves."""
    records: list[object] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=SHUTTING_DOWN
            )
        )
    return [*records, *leave(view, broker.id, view.image.partitions_in_isr(broker.id))]


def unregister(view: View, broker: Broker) -> list[object]:
    """A broker is taken out for good. Its replicas stay listed until somebody reassigns them."""
    held = [*view.image.partitions_in_isr(broker.id), *view.image.partitions_in_elr(broker.id)]
    return [*leave(view, broker.id, held), UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)]


def restart(view: View, broker_id: int, *, clean: bool) -> list[PartitionChangeRecord]:
    """A broker comes back in a new life. If the last one ended badly, what it acknowledged may be gone (KIP-966)."""
    image = view.image
    if clean or not view.elr_enabled:
        return leave(view, broker_id, image.partitions_in_isr(broker_id))
    held = [*image.partitions_in_isr(broker_id), *image.partitions_in_elr(broker_id)]
    return leave(view, broker_id, held, unclean=True)


def lose_directories(view: View, broker: Broker, offline: Iterable[bytes]) -> list[object]:
    """Directories of a broker failed: the replicas in them are out of sync."""
    lost = {*offline} & {*broker.log_dirs}
    if not lost:
        return []
    held = (each for each in view.image.partitions_with_replica(broker.id) if _directory(each, broker.id) in lost)
    online = [each for each in broker.log_dirs if each not in lost]
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=online)
    return [*leave(view, broker.id, held), change]


def cordon_directories(broker: Broker, cordoned: list[bytes] | None) -> list[object]:
    """A broker says which of its directories take no new replicas (KIP-1066); None says nothing."""
    known = broker.cordoned_log_dirs
    if cordoned is None or (known is not None and {*known} == {*cordoned}):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=sorted({*cordoned})
        )
    ]


def leave(view: View, broker_id: int, held: Iterable[Placed], *, unclean: bool = False) -> list[PartitionChangeRecord]:
    """A broker leaves the ISR of some partitions, and leads them no more."""
    may_lead = (view.active_brokers - {broker_id}).__contains__
    return _changes(view, held, may_lead=may_lead, leaving=broker_id, unclean_shutdown=broker_id if unclean else None)


def _changes(
    view: View,
    partitions: Iterable[Placed],
    *,
    may_lead: MayLead,
    leaving: int | None = None,
    unclean_shutdown: int | None = None,
) -> list[PartitionChangeRecord]:
    records = []
    for placed in partitions:
        isr = [replica for replica in placed.partition.isr if replica != leaving]
        target = Target(isr=isr, unclean_shutdown=unclean_shutdown)
        election = Election.UNCLEAN if view.allows_unclean_election(placed.topic) else Election.ONLINE
        record = change_partition(view, placed, target, election=election, may_lead=may_lead)
        if record is not None:
            records.append(record)
    return records


def _directory(placed: Placed, broker_id: int) -> bytes | None:
    return placed.partition.directory_of(broker_id)
