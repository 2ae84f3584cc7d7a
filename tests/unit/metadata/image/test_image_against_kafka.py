"""Images against Kafka's own: the same records make the same image, and a real broker's log can be followed.

Both sides replay random histories delta by delta, and write the last image as a snapshot. Their records must be equal
in every field and version. Only the order within a type may differ: Kafka's is that of its hash maps.
"""

import json
import random
import subprocess
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.harness.kafka_jars import class_path, java
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.metadata.image.encoding import decode_record, encode_record
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.loader import MetadataLoader
from ottla.metadata.image.snapshot import snapshot_records, versioned_snapshot_records
from ottla.protocol.messages.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from ottla.protocol.metadata_versions import LATEST, METADATA_VERSIONS, record_version
from ottla.protocol.wire.batch import read_batches
from tests.support.java_peer import JVM_OPTIONS
from tests.support.kafka_broker import KafkaNode
from tests.unit.metadata.image.stories import Story, replay

STORIES = 8
STEPS = 120


def judge(question: str, answers: Path) -> Any:
    command = [str(java()), *JVM_OPTIONS, "-cp", class_path(), "ImageJudge", question, str(answers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(answers.read_text())


def written(record: object, level: int) -> str:
    # This registration change has all fields set, which Kafka never does.
    return encode_record(record, record_version(type(record), level)).hex()


def comparable(record: Any) -> str:
    """Return all fields of a record, with unordered parts sorted."""
    if isinstance(record, RegisterBrokerRecord | RegisterControllerRecord):
        record.end_points.sort(key=lambda each: each.name)
        record.features.sort(key=lambda each: each.name)
    elif isinstance(record, ClientQuotaRecord):
        record.entity.sort(key=lambda each: each.entity_type)
    return repr(record)


def kinds_in_order(records: list[tuple[Any, int]]) -> list[type]:
    """Return the order of record types; topics and their partitions count as one type."""
    kinds = [TopicRecord if isinstance(record, PartitionRecord) else type(record) for record, _ in records]
    return [kind for kind, _ in groupby(kinds)]


def test_the_same_records_make_the_same_image(tmp_path: Path) -> None:
    cases = [(level, seed) for level in METADATA_VERSIONS for seed in range(STORIES)]
    stories = [Story(random.Random(f"{level} {seed}"), level=level).steps(STEPS) for level, seed in cases]
    question = tmp_path / "stories.json"
    encoded = [
        [[written(record, level) for record in step] for step in story]
        for (level, _), story in zip(cases, stories, strict=True)
    ]
    question.write_text(json.dumps(encoded))
    for story, answer in zip(stories, judge(str(question), tmp_path / "answers.json"), strict=True):
        image: Image = EMPTY
        for step in story:
            image = replay(step, image)
        ours = [decode_record(encode_record(*pair)) for pair in versioned_snapshot_records(image)]
        theirs = [decode_record(bytes.fromhex(text)) for text in answer]
        assert kinds_in_order(ours) == kinds_in_order(theirs)
        assert sorted((comparable(record), version) for record, version in ours) == sorted(
            (comparable(record), version) for record, version in theirs
        )


def test_the_levels_of_metadata_version_are_kafkas(tmp_path: Path) -> None:
    ours = [
        [
            *(version.level, version.name, version.release, version.changes_records, version.level <= LATEST),
            *(
                record_version(kind, version.level)
                for kind in (RegisterBrokerRecord, PartitionRecord, PartitionChangeRecord)
            ),
        ]
        for version in METADATA_VERSIONS.values()
    ]
    assert ours == judge("versions", tmp_path / "answers.json")
    assert record_version(BrokerRegistrationChangeRecord, LATEST) == 3


def test_the_log_of_a_kafka_broker_is_followed(tmp_path: Path) -> None:
    node = KafkaNode(tmp_path)
    node.format()
    with node.running():
        admin = AdminClient({"bootstrap.servers": node.address})
        for made in admin.create_topics(
            [NewTopic("orders", 3, 1, config={"retention.ms": "5"}), NewTopic("gone", 1, 1)]
        ).values():
            made.result(30)
        for deleted in admin.delete_topics(["gone"]).values():
            deleted.result(30)
    loader = MetadataLoader()
    folder = node.directory / "__cluster_metadata-0"
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        for position, header in read_batches(data):
            loader.load_batch(data, position, header)
    update = loader.publish()
    assert update is not None
    image = update.image
    assert image.features.metadata_version == LATEST
    assert [broker.id for broker in image.brokers.values()] == [1]
    assert image.topic("gone") is None
    orders = image.topic("orders")
    assert orders is not None
    assert len(orders.partitions) == 3
    # After a controlled shutdown there is no leader, and the last in-sync replica is eligible.
    assert all(partition.replicas == (1,) == partition.isr + partition.elr for partition in orders.partitions)
    assert len(list(image.partitions_without_leader())) == 3
    assert dict(image.topic_config("orders")) == {"retention.ms": "5"}
    endpoint = image.endpoint(1, "PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("127.0.0.1", node.port)
    again = replay(list(snapshot_records(image)))
    assert replace(again, offset=image.offset, epoch=image.epoch, timestamp=image.timestamp) == image
