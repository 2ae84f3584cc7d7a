"""Registration, unfencing, fencing, controlled shutdown and unregistration of brokers."""

import pytest

from ottla.metadata.controller import broker_heartbeat, registration
from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.heartbeats import Heartbeats
from ottla.metadata.image.values import NO_LEADER
from ottla.protocol.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from ottla.protocol.messages.rpc.broker_registration import Feature, Listener
from ottla.protocol.messages.rpc.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.rpc.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.metadata_versions import METADATA_VERSION, SHARE_VERSION
from tests.unit.metadata.controller.cluster import BROKER_FEATURES, SESSION_MS, Cluster, directory, uuid


def test_a_broker_starts_fenced_and_its_epoch_is_the_next_offset() -> None:
    cluster = Cluster()
    offset = cluster.next_offset
    reply = cluster.register(1, rack="here")
    broker = cluster.image.brokers[1]
    assert reply.broker_epoch == broker.epoch == offset
    assert broker.fenced
    assert (broker.rack, broker.log_dirs) == ("here", (directory(1),))


def test_a_broker_of_another_cluster_is_refused() -> None:
    with pytest.raises(InconsistentClusterId):
        Cluster().register(1, cluster_id="another")


@pytest.mark.parametrize(
    ("log_dirs", "why"),
    [
        ([], "No directories"),
        ([bytes(15) + b"\x02"], "Reserved"),
        ([uuid(1), uuid(1)], "Duplicate"),
        ([directory(2)], "already registered"),
    ],
)
def test_invalid_log_directories_are_rejected(log_dirs: list[bytes], why: str) -> None:
    with pytest.raises(InvalidRegistration, match=why):
        Cluster(2).register(1, log_dirs=log_dirs)


def test_before_directory_assignment_directories_are_not_written() -> None:
    cluster = Cluster(metadata_version=16)
    cluster.register(1, log_dirs=[])
    cluster.register(2)
    assert cluster.image.brokers[2].log_dirs == ()


@pytest.mark.parametrize(
    "listeners",
    [[Listener(name="")], [Listener(name="A"), Listener(name="A")], [Listener(name="A", security_protocol=9)]],
)
def test_invalid_listeners_are_rejected(listeners: list[Listener]) -> None:
    with pytest.raises(InvalidRegistration):
        Cluster().register(1, listeners=listeners)


def test_a_broker_must_support_the_finalized_features() -> None:
    cluster = Cluster()
    cluster.apply(Decision((FeatureLevelRecord(name=SHARE_VERSION, feature_level=1),), None))
    without = [each for each in BROKER_FEATURES if each.name != SHARE_VERSION]
    with pytest.raises(UnsupportedVersion, match="finalized version 1"):
        cluster.register(1, features=without)
    old = [Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=20)]
    with pytest.raises(UnsupportedVersion, match="between 7 and 20"):
        cluster.register(1, features=[*old, *(each for each in without if each.name != METADATA_VERSION)])
    with pytest.raises(InvalidRegistration, match=r"metadata\.version"):
        cluster.register(1, features=[])


def test_a_broker_id_is_taken_while_its_session_lasts() -> None:
    cluster = Cluster(1)
    with pytest.raises(DuplicateBrokerRegistration):
        cluster.register(1)
    cluster.now_ms += SESSION_MS + 1
    cluster.register(1)
    assert cluster.image.brokers[1].fenced


def test_a_broker_that_dies_before_its_first_heartbeat_can_register_again() -> None:
    cluster = Cluster()
    cluster.register(1)
    first = cluster.image.brokers[1].epoch
    cluster.register(1)
    assert cluster.image.brokers[1].epoch > first
    with pytest.raises(StaleBrokerEpoch):
        cluster.beat(1, broker_epoch=first)


def test_an_incarnation_that_registers_again_keeps_its_epoch_and_state() -> None:
    cluster = Cluster()
    cluster.start(1, incarnation_id=uuid(7))
    epoch = cluster.image.brokers[1].epoch
    cluster.register(1, incarnation_id=uuid(7), rack="moved")
    broker = cluster.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.rack) == (epoch, False, "moved")


def test_a_broker_is_unfenced_when_it_has_applied_its_registration() -> None:
    cluster = Cluster()
    cluster.register(1)
    early = cluster.beat(1, current_metadata_offset=cluster.next_offset - 2)
    assert (early.is_fenced, early.is_caught_up) == (True, False)
    waiting = cluster.beat(1, want_fence=True)
    assert (waiting.is_fenced, waiting.is_caught_up) == (True, True)
    assert not cluster.beat(1).is_fenced
    assert not cluster.image.brokers[1].fenced


def test_the_registration_offset_is_that_of_the_last_record() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1, 2], [1, 2])
    cluster.now_ms += SESSION_MS + 1
    cluster.register(1)
    first = cluster.image.brokers[1].epoch
    assert isinstance(cluster.written[-1], RegisterBrokerRecord)
    assert cluster.next_offset - 1 == first + 2
    assert cluster.beat(1, current_metadata_offset=first).is_fenced
    assert not cluster.beat(1, current_metadata_offset=first + 2).is_fenced


def test_heartbeats_with_an_old_epoch_or_unknown_id_are_stale() -> None:
    cluster = Cluster(1)
    with pytest.raises(StaleBrokerEpoch):
        cluster.beat(1, broker_epoch=999)
    with pytest.raises(StaleBrokerEpoch):
        cluster.beat(2)


def test_a_broker_without_a_session_is_fenced_and_others_lead() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    cluster.stop(1)
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (2, (2, 3))
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)


def test_brokers_are_fenced_one_by_one_in_order_of_expiry() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", [1, 2])
    cluster.now_ms += 10
    cluster.beat(2)
    cluster.now_ms += SESSION_MS + 1
    cluster.beat(3)
    assert cluster.apply(broker_heartbeat.fence_stale_broker(cluster.view, cluster.heartbeats, now_ms=cluster.now_ms))
    assert (cluster.image.brokers[1].fenced, cluster.image.brokers[2].fenced) == (True, False)
    assert cluster.apply(broker_heartbeat.fence_stale_broker(cluster.view, cluster.heartbeats, now_ms=cluster.now_ms))
    assert not cluster.apply(
        broker_heartbeat.fence_stale_broker(cluster.view, cluster.heartbeats, now_ms=cluster.now_ms)
    )
    assert (cluster.partition().leader, cluster.partition().isr) == (NO_LEADER, (2,))
    assert not cluster.image.brokers[3].fenced


def test_a_broken_connection_shortens_the_session_until_the_next_heartbeat() -> None:
    cluster = Cluster(1, 2)
    epoch = cluster.image.brokers[1].epoch
    cluster.heartbeats.shorten_session(1, epoch, cluster.now_ms, grace_ms=500)
    cluster.now_ms += 400
    cluster.beat(1)
    cluster.now_ms += 400
    assert cluster.heartbeats.expired_brokers(cluster.now_ms) == []
    cluster.heartbeats.shorten_session(1, epoch - 1, cluster.now_ms, grace_ms=0)  # of an earlier incarnation
    cluster.heartbeats.shorten_session(2, cluster.image.brokers[2].epoch, cluster.now_ms, grace_ms=500)
    assert cluster.heartbeats.expired_brokers(cluster.now_ms + 500) == []
    assert cluster.heartbeats.expired_brokers(cluster.now_ms + 501) == [2]


def test_a_returning_broker_leads_partitions_that_only_it_has() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1])
    cluster.stop(1)
    assert (cluster.partition().leader, cluster.partition().isr) == (NO_LEADER, (1,))
    cluster.start(1)
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))
    assert cluster.partition().leader_epoch == 2


def test_a_controlled_shutdown_moves_leaders_then_waits_for_the_other_brokers() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    behind = cluster.next_offset - 1
    leaving = cluster.beat(1, want_shut_down=True)
    assert (leaving.is_fenced, leaving.should_shut_down) == (False, False)
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2, 3))
    cluster.beat(2)
    cluster.beat(3, current_metadata_offset=behind)
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(3)
    done = cluster.beat(1, want_shut_down=True)
    assert (done.is_fenced, done.should_shut_down) == (True, True)
    assert cluster.image.brokers[1].fenced


def test_a_controlled_shutdown_waits_while_no_other_broker_can_lead() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1])
    reply = cluster.beat(1, want_shut_down=True)
    # The partition has no leader rather than one that shuts down.
    assert not reply.should_shut_down
    assert cluster.partition().leader == NO_LEADER
    cluster.beat(2)
    assert cluster.beat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_shut_down_can_register_at_once() -> None:
    cluster = Cluster(1, 2)
    assert cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.register(1)
    assert not cluster.image.brokers[1].in_controlled_shutdown


def test_a_fenced_broker_may_shut_down_at_once() -> None:
    cluster = Cluster()
    cluster.register(1)
    reply = cluster.beat(1, want_shut_down=True, current_metadata_offset=-1)
    assert (reply.is_fenced, reply.should_shut_down) == (True, True)


def test_a_broker_may_ask_to_be_fenced() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1, 2])
    assert cluster.beat(1, want_fence=True).is_fenced
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))


def test_a_new_controller_gives_every_unfenced_broker_a_full_session() -> None:
    cluster = Cluster(1, 2)
    cluster.stop(2)
    heartbeats = Heartbeats(SESSION_MS)
    heartbeats.activate(cluster.image, 500)
    assert heartbeats.expired_brokers(500 + SESSION_MS) == []
    assert heartbeats.expired_brokers(500 + SESSION_MS + 1) == [1]


def test_failed_directories_take_their_replicas_out_of_sync() -> None:
    cluster = Cluster(2)
    cluster.start(1, log_dirs=[directory(1, 0), directory(1, 1)])
    cluster.create("t", [1, 2], [1, 2])
    cluster.apply(
        Decision(
            tuple(
                PartitionChangeRecord(
                    topic_id=cluster.topic_id(), partition_id=number, directories=[directory(1, number), directory(2)]
                )
                for number in (0, 1)
            ),
            None,
        )
    )
    cluster.beat(1, offline_log_dirs=[directory(1, 1), uuid(99)])
    assert cluster.image.brokers[1].log_dirs == (directory(1, 0),)
    assert (cluster.partition("t", 0).leader, cluster.partition("t", 0).isr) == (1, (1, 2))
    assert (cluster.partition("t", 1).leader, cluster.partition("t", 1).isr) == (2, (2,))
    assert not cluster.beat(1, offline_log_dirs=[directory(1, 1)]).is_fenced
    assert cluster.written == []


def test_a_broker_does_not_lead_in_a_directory_that_failed_while_it_was_fenced() -> None:
    cluster = Cluster(2)
    both = [directory(1, 0), directory(1, 1)]
    cluster.start(1, log_dirs=both)
    cluster.create("t", [1])
    cluster.apply(
        Decision(
            (PartitionChangeRecord(topic_id=cluster.topic_id(), partition_id=0, directories=[directory(1, 1)]),), None
        )
    )
    cluster.stop(1)
    cluster.register(1, log_dirs=both)
    assert not cluster.beat(1, offline_log_dirs=[directory(1, 1)]).is_fenced
    assert cluster.partition().leader == NO_LEADER


def test_cordoned_directories_are_recorded_when_they_change() -> None:
    cluster = Cluster(1)
    assert cluster.image.brokers[1].cordoned_log_dirs is None
    cluster.beat(1, cordoned_log_dirs=[directory(1)])
    noted = cluster.image.brokers[1].cordoned_log_dirs
    assert noted == (directory(1),)
    cluster.beat(1, cordoned_log_dirs=[directory(1)])
    assert cluster.written == []
    cluster.beat(1, cordoned_log_dirs=[])
    noted = cluster.image.brokers[1].cordoned_log_dirs
    assert noted == ()


def test_an_operator_unregisters_a_broker() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1, 2])
    request = UnregisterBrokerRequest(broker_id=1)
    cluster.apply(registration.unregister_broker(cluster.view, cluster.heartbeats, request))
    assert 1 not in cluster.image.brokers
    assert (cluster.partition().replicas, cluster.partition().isr, cluster.partition().leader) == ((1, 2), (2,), 2)
    with pytest.raises(BrokerIdNotRegistered):
        registration.unregister_broker(cluster.view, cluster.heartbeats, request)


def test_controllers_register_from_3_7_on() -> None:
    request = ControllerRegistrationRequest(controller_id=3000, incarnation_id=uuid(1))
    cluster = Cluster()
    cluster.apply(registration.register_controller(cluster.view, request))
    assert 3000 in cluster.image.controllers
    with pytest.raises(UnsupportedVersion):
        registration.register_controller(Cluster(metadata_version=14).view, request)


def test_after_an_unclean_shutdown_a_broker_is_not_eligible() -> None:
    cluster = Cluster(1, 2, 3, elr=True)
    cluster.create("t", [1, 2, 3], configs={"min.insync.replicas": "2"})
    cluster.stop(1)
    cluster.stop(2)
    assert (cluster.partition().isr, cluster.partition().elr) == ((3,), (2,))
    cluster.register(2)
    assert cluster.partition().elr == ()


def test_after_a_clean_shutdown_a_broker_stays_eligible() -> None:
    cluster = Cluster(1, 2, 3, elr=True)
    cluster.create("t", [1, 2, 3], configs={"min.insync.replicas": "2"})
    cluster.stop(1)
    cluster.stop(2)
    cluster.register(2, previous_broker_epoch=cluster.image.brokers[2].epoch)
    assert cluster.partition().elr == (2,)
    cluster.stop(3)
    assert (cluster.partition().leader, cluster.partition().elr) == (NO_LEADER, (2, 3))
    assert (cluster.partition().isr, cluster.partition().last_known_elr) == ((), (3,))
    assert not cluster.beat(2).is_fenced
    assert (cluster.partition().leader, cluster.partition().isr, cluster.partition().elr) == (2, (2,), (3,))
    assert cluster.partition().last_known_elr == ()
