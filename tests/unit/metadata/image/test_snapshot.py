"""Snapshots: record versions, and images that older versions cannot express."""

import pytest

from ottla.metadata.image.errors import UnwritableImage
from ottla.metadata.image.image import EMPTY
from ottla.metadata.image.snapshot import snapshot_records, versioned_snapshot_records
from ottla.protocol.messages.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.metadata_versions import (
    ELR_VERSION,
    LATEST,
    METADATA_VERSIONS,
    OLDEST,
    record_version,
    version_to_write,
)
from tests.unit.metadata.image.stories import replay, uuid

PARTITION = PartitionRecord(partition_id=0, topic_id=uuid(1), replicas=[1], directories=[uuid(9)])


def at(level: int, *records: object) -> list[object]:
    return [FeatureLevelRecord(name="metadata.version", feature_level=level), *records]


@pytest.mark.parametrize(
    ("record", "level"),
    [
        (RegisterBrokerRecord(broker_id=1, is_migrating_zk_broker=True), 7),
        (RegisterBrokerRecord(broker_id=1, log_dirs=[uuid(1)]), 16),
        (RegisterBrokerRecord(broker_id=1, cordoned_log_dirs=[]), 29),
        (RegisterControllerRecord(controller_id=1), 14),
        (UserScramCredentialRecord(name="u", mechanism=1), 10),
        (DelegationTokenRecord(token_id="t"), 13),
    ],
)
def test_an_image_that_its_level_cannot_express_is_not_written(record: object, level: int) -> None:
    with pytest.raises(UnwritableImage, match=f"cannot be written at metadata.version {level}"):
        list(snapshot_records(replay(at(level, record))))
    newer = replay(at(level + 1, record))
    assert replay(list(snapshot_records(newer))) == newer


def test_directories_need_their_level() -> None:
    image = replay(at(16, TopicRecord(name="t", topic_id=uuid(1)), PARTITION))
    with pytest.raises(UnwritableImage, match="the directories of replicas"):
        list(snapshot_records(image))
    newer = replay(at(LATEST, TopicRecord(name="t", topic_id=uuid(1)), PARTITION))
    assert list(snapshot_records(newer))[-1] == PARTITION


def test_eligible_leaders_are_written_only_while_their_feature_is_on() -> None:
    partition = PartitionRecord(partition_id=0, topic_id=uuid(1), eligible_leader_replicas=[1], last_known_elr=[])
    records = at(30, TopicRecord(name="t", topic_id=uuid(1)), partition)
    *_, without = snapshot_records(replay(records))
    *_, given = snapshot_records(replay([FeatureLevelRecord(name=ELR_VERSION, feature_level=1), *records]))
    assert isinstance(without, PartitionRecord)
    assert isinstance(given, PartitionRecord)
    assert without.eligible_leader_replicas is None
    assert (given.eligible_leader_replicas, given.last_known_elr) == ([1], None)


def test_an_image_without_metadata_version_cannot_be_written() -> None:
    with pytest.raises(UnwritableImage, match=r"metadata\.version 0"):
        list(snapshot_records(EMPTY))


def test_records_are_written_in_the_versions_of_the_level() -> None:
    image = replay(at(17, RegisterBrokerRecord(broker_id=1), TopicRecord(name="t", topic_id=uuid(1)), PARTITION))
    assert [version for _, version in versioned_snapshot_records(image)] == [0, 3, 0, 1]


def test_levels_have_names_and_releases() -> None:
    assert (METADATA_VERSIONS[OLDEST].name, METADATA_VERSIONS[LATEST].name) == ("3.3-IV3", "4.3-IV0")
    assert METADATA_VERSIONS[OLDEST].release == "3.3"


@pytest.mark.parametrize(
    ("record", "version"),
    [
        (BrokerRegistrationChangeRecord(fenced=1), 0),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 1),
        (BrokerRegistrationChangeRecord(log_dirs=[uuid(1)]), 2),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), 3),
        (PartitionRecord(), 2),
    ],
)
def test_a_registration_change_is_written_in_its_lowest_version(record: object, version: int) -> None:
    assert version_to_write(record, LATEST) == version
    assert record_version(type(record), LATEST) == (2 if isinstance(record, PartitionRecord) else 3)
