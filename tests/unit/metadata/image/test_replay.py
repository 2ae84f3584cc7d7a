"""Replay: the effect of each record on an image."""

import pytest
from immutables import Map

from ottla.metadata.image.delta import Delta
from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.values import (
    DIRECTORY_MIGRATING,
    NO_LEADER,
    Acl,
    Broker,
    ConfigResource,
    Endpoint,
    Partition,
    ResourceType,
    ScramUser,
    quota_entity,
)
from ottla.protocol.features import FeatureRange
from ottla.protocol.messages.records import metadata_records as r
from tests.unit.metadata.image.stories import replay, uuid

TOPIC = uuid(7)
LEFT = b"\x80" + bytes(15)
RIGHT = b"\x01" + bytes(15)


def a_topic(*, name: str = "t", topic_id: bytes = TOPIC, partitions: int = 1) -> list[object]:
    records = [
        r.PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=[1, 2, 3],
            isr=[1, 2],
            leader=1,
            leader_epoch=4,
            partition_epoch=6,
            directories=[uuid(11), uuid(12), uuid(13)],
        )
        for number in range(partitions)
    ]
    return [r.TopicRecord(name=name, topic_id=topic_id), *records]


def changed(**fields: object) -> Partition:
    """The partition of `a_topic` after a change."""
    record = r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC)
    for name, value in fields.items():
        setattr(record, name, value)
    result = replay([*a_topic(), record]).partition("t", 0)
    assert result is not None
    return result


def a_broker(*, epoch: int = 5, **fields: object) -> list[object]:
    record = r.RegisterBrokerRecord(broker_id=1, broker_epoch=epoch, incarnation_id=uuid(1), rack=None)
    for name, value in fields.items():
        setattr(record, name, value)
    return [record]


def broker(*records: object) -> Broker:
    result = replay(records).broker(1)
    assert result is not None
    return result


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = replay(a_topic(partitions=2))
    assert image.topic("t") is image.topic_by_id(TOPIC)
    assert image.partition("t", 1) == image.partition_by_id(TOPIC, 1)
    assert image.partition("t", 1) == Partition(
        replicas=(1, 2, 3),
        isr=(1, 2),
        removing=(),
        adding=(),
        leader=1,
        leader_epoch=4,
        partition_epoch=6,
        directories=(uuid(11), uuid(12), uuid(13)),
        leader_recovery=0,
        elr=(),
        last_known_elr=(),
    )
    assert image.partition("t", 2) is None
    assert image.partition("t", -1) is None
    assert image.partition("u", 0) is None


def test_partitions_can_come_in_any_order_but_without_gaps() -> None:
    topic, *partitions = a_topic(partitions=3)
    assert replay([topic, *reversed(partitions)]) == replay([topic, *partitions])
    with pytest.raises(ReplayError, match="topic t would have 2 partitions, but a partition 2"):
        replay([topic, partitions[0], partitions[2]])


def test_every_change_raises_the_partition_epoch() -> None:
    assert changed().partition_epoch == 7
    assert changed()._replace(partition_epoch=6) == replay(a_topic()).partition("t", 0)


@pytest.mark.parametrize("leader", [1, 2, NO_LEADER])
def test_naming_a_leader_raises_the_leader_epoch_even_if_it_is_the_same(leader: int) -> None:
    assert (changed(leader=leader).leader, changed(leader=leader).leader_epoch) == (leader, 5)
    assert (changed(isr=[1]).leader, changed(isr=[1]).leader_epoch) == (1, 4)


def test_an_empty_list_is_a_change_and_none_is_not() -> None:
    partition = changed(isr=[], removing_replicas=[3], adding_replicas=[2], eligible_leader_replicas=[1])
    assert (partition.isr, partition.removing, partition.adding, partition.elr) == ((), (3,), (2,), (1,))
    image = replay([*a_topic(), r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, eligible_leader_replicas=[1])])
    kept = replay([r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, last_known_elr=[2])], image)
    cleared = replay([r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, eligible_leader_replicas=[])], image)
    assert [result.elr for each in (kept, cleared) if (result := each.partition("t", 0))] == [(1,), ()]


def test_replicas_without_directories_need_as_many_as_there_were() -> None:
    assert changed(replicas=[3, 2, 1]).directories == (uuid(11), uuid(12), uuid(13))
    with pytest.raises(ReplayError, match="3 directories for 2 replicas"):
        changed(replicas=[1, 2])
    with pytest.raises(ReplayError, match="1 directories for 3 replicas"):
        changed(directories=[uuid(11)])


def test_unknown_directories_fit_any_number_of_replicas() -> None:
    assert changed(replicas=[1, 2], directories=[]).directories == (DIRECTORY_MIGRATING,) * 2
    topic, partition = a_topic()
    assert isinstance(partition, r.PartitionRecord)
    partition.directories = []
    grown = replay([topic, partition, r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2, 3, 4])])
    result = grown.partition("t", 0)
    assert result is not None
    assert result.directories == (DIRECTORY_MIGRATING,) * 4


def test_an_unclean_election_marks_the_partition_until_it_recovered() -> None:
    assert changed(leader_recovery_state=1).leader_recovery == 1
    assert changed(leader_recovery_state=-1).leader_recovery == 0
    with pytest.raises(ReplayError, match="no leader recovery state 2"):
        changed(leader_recovery_state=2)


def test_clearing_elr_changes_only_partitions_that_have_one() -> None:
    with_elr = r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, eligible_leader_replicas=[3])
    image = replay([*a_topic(partitions=2), *a_topic(name="u", topic_id=uuid(8)), with_elr])
    for name in ("", "t"):
        cleared = replay([r.ClearElrRecord(topic_name=name)], image)
        first, second = cleared.partition("t", 0), cleared.partition("t", 1)
        assert first is not None
        assert (first.elr, first.partition_epoch) == ((), 8)
        assert second is image.partition("t", 1)
        assert cleared.topic("u") is image.topic("u")
    with pytest.raises(ReplayError, match="no topic nope"):
        replay([r.ClearElrRecord(topic_name="nope")], image)


def test_removing_a_topic_removes_its_configs() -> None:
    setting = r.ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name="a", value="1")
    removal = r.RemoveTopicRecord(topic_id=TOPIC)
    assert replay([*a_topic(), setting, removal]) == replay([removal], replay([*a_topic(), setting]))
    image = replay([*a_topic(), setting, removal])
    assert not image.topics
    assert not image.topics_by_id
    assert not image.configs


def test_a_topic_can_be_recreated() -> None:
    image = replay([r.RemoveTopicRecord(topic_id=TOPIC), *a_topic(topic_id=uuid(9))], replay(a_topic()))
    topic = image.topic("t")
    assert topic is not None
    assert topic.id == uuid(9)
    assert list(image.topics_by_id) == [uuid(9)]


@pytest.mark.parametrize(
    "record",
    [
        r.TopicRecord(name="t", topic_id=uuid(8)),
        r.TopicRecord(name="u", topic_id=TOPIC),
        r.PartitionRecord(partition_id=0, topic_id=uuid(8)),
        r.PartitionRecord(partition_id=-1, topic_id=TOPIC),
        r.PartitionChangeRecord(partition_id=1, topic_id=TOPIC),
        r.PartitionChangeRecord(partition_id=0, topic_id=uuid(8)),
        r.RemoveTopicRecord(topic_id=uuid(8)),
        r.FenceBrokerRecord(id=1, epoch=5),
        r.RemoveAccessControlEntryRecord(id=uuid(8)),
        r.FeatureLevelRecord(name="metadata.version", feature_level=6),
        r.BeginTransactionRecord(),
        r.RegisterBrokerRecord(broker_id=1, end_points=[r.BrokerEndpoint(name="")]),
        r.RegisterControllerRecord(end_points=[r.ControllerEndpoint(name="C", security_protocol=9)]),
    ],
    ids=repr,
)
def test_a_record_that_does_not_fit_is_rejected(record: object) -> None:
    image = replay(a_topic())
    with pytest.raises(ReplayError):
        Delta(image).apply(record)
    assert image == replay(a_topic())


def test_a_broker_registers() -> None:
    result = broker(
        *a_broker(
            end_points=[r.BrokerEndpoint(name="A", host="h", port=9092, security_protocol=3)],
            features=[r.BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)],
            rack="r",
            log_dirs=[RIGHT, LEFT],
            cordoned_log_dirs=[RIGHT, LEFT],
        )
    )
    assert result == Broker(
        id=1,
        epoch=5,
        incarnation_id=uuid(1),
        endpoints=Map({"A": Endpoint("h", 9092, 3)}),
        features=Map({"f": FeatureRange(1, 2)}),
        rack="r",
        fenced=True,
        log_dirs=(LEFT, RIGHT),  # in Kafka the upper half of the first one is negative
        cordoned_log_dirs=(RIGHT, LEFT),
    )


def test_a_later_registration_replaces_the_earlier_one() -> None:
    assert broker(*a_broker(rack="r", log_dirs=[LEFT]), *a_broker(epoch=6)) == broker(*a_broker(epoch=6))


def test_brokers_are_fenced_unfenced_and_unregistered() -> None:
    records = a_broker(fenced=True)
    assert not broker(*records, r.UnfenceBrokerRecord(id=1, epoch=5)).fenced
    assert broker(*records, r.UnfenceBrokerRecord(id=1, epoch=5), r.FenceBrokerRecord(id=1, epoch=5)).fenced
    assert not broker(*records, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1)).fenced
    assert not replay([*records, r.UnregisterBrokerRecord(broker_id=1, broker_epoch=5)]).brokers
    assert replay([r.UnregisterBrokerRecord(broker_id=1)]) == replay([])


def test_a_registration_change_keeps_other_fields() -> None:
    records = a_broker(fenced=True, log_dirs=[LEFT], cordoned_log_dirs=[LEFT])
    change = r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5)
    assert broker(*records, change) == broker(*records)
    change.in_controlled_shutdown, change.log_dirs, change.cordoned_log_dirs = 1, [RIGHT, LEFT], []
    result = broker(*records, change)
    assert result.fenced
    assert result.in_controlled_shutdown
    assert (result.log_dirs, result.cordoned_log_dirs) == ((LEFT, RIGHT), ())


@pytest.mark.parametrize(("field", "value"), [("broker_epoch", 4), ("fenced", 2), ("in_controlled_shutdown", -1)])
def test_an_invalid_registration_change_is_rejected(field: str, value: int) -> None:
    change = r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5)
    setattr(change, field, value)
    with pytest.raises(ReplayError):
        replay([*a_broker(), change])


def test_configs_are_set_and_deleted() -> None:
    def setting(name: str, value: str | None) -> object:
        return r.ConfigRecord(resource_type=ResourceType.BROKER, resource_name="1", name=name, value=value)

    image = replay([setting("a", "1"), setting("b", ""), setting("c", None)])
    assert dict(image.broker_config(1)) == {"a": "1", "b": ""}
    assert dict(replay([setting("a", None)], image).broker_config(1)) == {"b": ""}
    emptied = replay([setting("a", None), setting("b", None)], image)
    assert not emptied.configs
    assert not emptied.broker_config(1)
    assert not image.default_broker_config


def test_configs_that_this_node_does_not_keep_are_ignored() -> None:
    delta = Delta(EMPTY, keeps_config=lambda kind, name: name != "new.in.kafka.9")
    for name in ("new.in.kafka.9", "retention.ms"):
        delta.apply(r.ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name=name, value="1"))
    assert dict(delta.finish(offset=1, epoch=1, timestamp=1).topic_config("t")) == {"retention.ms": "1"}


def test_quotas_are_by_entity_in_any_order_of_its_parts() -> None:
    def quota(*parts: tuple[str, str | None], remove: bool = False) -> object:
        entity = [r.EntityData(entity_type=kind, entity_name=name) for kind, name in parts]
        return r.ClientQuotaRecord(entity=entity, key="k", value=1.5, remove=remove)

    image = replay([quota(("user", "u"), ("client-id", None))])
    assert dict(image.quota(quota_entity({"client-id": None, "user": "u"}))) == {"k": 1.5}
    assert not image.quota(quota_entity({"user": "u"}))
    assert not replay([quota(("client-id", None), ("user", "u"), remove=True)], image).quotas


def test_features_are_finalized_and_disabled() -> None:
    def level(name: str, value: int) -> object:
        return r.FeatureLevelRecord(name=name, feature_level=value)

    image = replay([level("metadata.version", 30), level("group.version", 1), level("kraft.version", 1)])
    assert image.features.metadata_version == 30
    assert dict(image.features.levels) == {"group.version": 1}
    assert replay([level("group.version", 0)], image).features.level("group.version") == 0


def test_access_rules_credentials_tokens_and_producer_ids_are_kept() -> None:
    rule = r.AccessControlEntryRecord(
        id=uuid(1), resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    credential = r.UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", iterations=4096)
    token = r.DelegationTokenRecord(token_id="id", owner="User:a", renewers=["User:b"])
    image = replay([rule, credential, token, r.ProducerIdsRecord(next_producer_id=1000)])
    assert dict(image.acls) == {uuid(1): Acl(2, "t", 3, "User:a", "*", 3, 3)}
    assert image.scram[ScramUser(1, "u")].salt == b"s"
    assert image.tokens["id"].renewers == ("User:b",)
    assert image.next_producer_id == 1000
    removals = [
        r.RemoveAccessControlEntryRecord(id=uuid(1)),
        r.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        r.RemoveUserScramCredentialRecord(name="u", mechanism=2),
        r.RemoveDelegationTokenRecord(token_id="id"),
        r.RemoveDelegationTokenRecord(token_id="other"),
        r.ProducerIdsRecord(next_producer_id=-1),
    ]
    assert replay(removals, image) == replay([])
    assert "hidden" in repr(image)
    assert "User:a" not in repr(image.tokens)


def test_controllers_register() -> None:
    endpoint = r.ControllerEndpoint(name="C", host="h", port=1, security_protocol=0)
    image = replay([r.RegisterControllerRecord(controller_id=3, incarnation_id=uuid(3), end_points=[endpoint])])
    assert image.controllers[3].endpoints["C"] == Endpoint("h", 1, 0)


def test_some_records_change_nothing() -> None:
    image = replay(a_topic())
    assert replay([r.NoOpRecord(), r.ZkMigrationStateRecord(zk_migration_state=2)], image) == image


def test_alive_brokers_are_the_unfenced_in_the_order_of_their_ids() -> None:
    records = [r.RegisterBrokerRecord(broker_id=number, fenced=number == 2) for number in (3, 2, 1)]
    image = replay(records)
    assert [each.id for each in image.alive_brokers] == [1, 3]
    assert [image.is_alive(number) for number in (1, 2, 4)] == [True, False, False]
    assert image.endpoint(1, "A") is None
    assert image.endpoint(4, "A") is None
    again = replay([r.FenceBrokerRecord(id=1, epoch=0)], image)
    assert [each.id for each in again.alive_brokers] == [3]


def test_unchanged_parts_are_the_same_objects() -> None:
    image = replay([*a_topic(), *a_topic(name="u", topic_id=uuid(8)), *a_broker()])
    after = replay([r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=2)], image)
    assert after.topic("u") is image.topic("u")
    for part in ("features", "brokers", "controllers", "configs", "quotas", "acls", "scram", "tokens"):
        assert getattr(after, part) is getattr(image, part)
    untouched = replay([r.NoOpRecord()], image)
    assert (untouched.topics, untouched.topics_by_id) == (image.topics, image.topics_by_id)
    assert untouched.topics is image.topics


def test_an_empty_image_answers() -> None:
    assert Image() == EMPTY
    assert EMPTY.topic("t") is None
    assert EMPTY.alive_brokers == ()
    assert list(EMPTY.partitions_without_leader()) == []
    assert EMPTY.config(ResourceType.TOPIC, "t") == Map()
    assert ConfigResource(2, "t") == (2, "t")
