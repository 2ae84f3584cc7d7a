"""Random histories of a cluster: records in an order in which Kafka's controller could write them."""

import random
from collections.abc import Sequence

from ottla.metadata.image.delta import Delta
from ottla.metadata.image.image import EMPTY, Image
from ottla.protocol import metadata_versions
from ottla.protocol.messages.records.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

BROKERS = 5


def uuid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def replay(records: Sequence[object], image: Image = EMPTY, *, offset: int = 0) -> Image:
    """Return the image after some records, applied in one delta."""
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    return delta.finish(offset=offset, epoch=1, timestamp=1)


class Story:
    """A random history. Each step has the records of one decision, and depends on the state so far."""

    def __init__(self, source: random.Random, *, level: int = metadata_versions.LATEST) -> None:
        self.random = source
        self.level = level
        self.has_elr = level >= metadata_versions.ELIGIBLE_LEADER_REPLICAS
        self.epochs: dict[int, int] = {}
        self.topics: dict[bytes, tuple[str, list[int]]] = {}
        """Name, and the number of replicas of each partition."""
        self.acls: list[bytes] = []
        self.count = 0
        self.kinds = [
            *(self.broker, self.broker_change, self.fencing, self.unregister, self.controller),
            *(self.topic, self.topic, self.partition, self.change, self.change, self.change, self.remove_topic),
            *(self.clear_elr, self.config, self.config, self.quota, self.producer_ids, self.feature),
            *(self.acl, self.remove_acl, self.scram, self.token, self.nothing),
        ]

    def beginning(self) -> list[object]:
        """Return the first records of a cluster."""
        levels = [FeatureLevelRecord(name=metadata_versions.METADATA_VERSION, feature_level=self.level)]
        if self.has_elr:
            levels.append(FeatureLevelRecord(name=metadata_versions.ELR_VERSION, feature_level=1))
        return [*levels]

    def steps(self, count: int) -> list[list[object]]:
        return [self.beginning(), *(self.random.choice(self.kinds)() for _ in range(count))]

    def id(self) -> bytes:
        self.count += 1
        # Kafka sorts UUIDs as two signed numbers, and both can be negative.
        return self.random.choice((b"\x00", b"\x7f", b"\xff")) + bytes(6) + self.count.to_bytes(9, "big")

    def maybe(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def some(self, most: int = 4) -> list[int]:
        return self.random.sample(range(BROKERS), self.random.randint(0, min(most, BROKERS)))

    def directories(self, count: int) -> list[bytes]:
        if self.level < metadata_versions.DIRECTORY_ASSIGNMENT or self.maybe(0.1):
            return []
        return [uuid(self.random.randrange(4)) for _ in range(count)]

    def broker(self) -> list[object]:
        broker_id = self.random.randrange(BROKERS)
        self.count += 1
        epoch = self.epochs[broker_id] = self.count
        record = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=self.id(),
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=name, host=f"h{broker_id}", port=9092, security_protocol=self.random.randrange(4))
                for name in self.random.sample(["A", "B", "C"], self.random.randint(0, 3))
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=1, max_supported_version=7)
                for name in self.random.sample(["x", "y"], self.random.randint(0, 2))
            ],
            rack=self.random.choice([None, "", "r1"]),
            fenced=self.maybe(),
            in_controlled_shutdown=self.maybe(),
        )
        if self.level >= metadata_versions.ZK_MIGRATION:
            record.is_migrating_zk_broker = self.maybe(0.1)
        if self.level >= metadata_versions.DIRECTORY_ASSIGNMENT:
            record.log_dirs = [self.id() for _ in range(self.random.randint(0, 3))]
        if self.level >= metadata_versions.CORDONED_LOG_DIRS and self.maybe():
            record.cordoned_log_dirs = [self.id() for _ in range(self.random.randint(0, 2))]
        return [record]

    def broker_change(self) -> list[object]:
        if not self.epochs:
            return self.broker()
        broker_id = self.random.choice(list(self.epochs))
        record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=self.epochs[broker_id])
        record.fenced = self.random.choice((-1, 0, 1))
        record.in_controlled_shutdown = self.random.choice((0, 1))
        if self.level >= metadata_versions.DIRECTORY_ASSIGNMENT:
            record.log_dirs = [self.id() for _ in range(self.random.randint(0, 2))]
        if self.level >= metadata_versions.CORDONED_LOG_DIRS and self.maybe():
            record.cordoned_log_dirs = [self.id() for _ in range(self.random.randint(0, 2))]
        return [record]

    def fencing(self) -> list[object]:
        if not self.epochs:
            return self.broker()
        broker_id = self.random.choice(list(self.epochs))
        kind = self.random.choice((FenceBrokerRecord, UnfenceBrokerRecord))
        return [kind(id=broker_id, epoch=self.epochs[broker_id])]

    def unregister(self) -> list[object]:
        broker_id = self.random.randrange(BROKERS)
        return [UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=self.epochs.pop(broker_id, 0))]

    def controller(self) -> list[object]:
        if self.level < metadata_versions.CONTROLLER_REGISTRATION:
            return self.nothing()
        return [
            RegisterControllerRecord(
                controller_id=self.random.randrange(3),
                incarnation_id=self.id(),
                zk_migration_ready=self.maybe(),
                end_points=[ControllerEndpoint(name="C", host="c", port=9093, security_protocol=1)],
                features=[ControllerFeature(name="x", min_supported_version=0, max_supported_version=self.count)],
            )
        ]

    def topic(self) -> list[object]:
        taken = {name for name, _ in self.topics.values()}
        free = [name for name in ("a", "b", "c", "d", "e", "f") if name not in taken]
        if not free:
            return self.remove_topic()
        topic_id = self.id()
        self.topics[topic_id] = (self.random.choice(free), [])
        record = TopicRecord(name=self.topics[topic_id][0], topic_id=topic_id)
        return [record, *(self.new_partition(topic_id) for _ in range(self.random.randint(0, 3)))]

    def new_partition(self, topic_id: bytes) -> PartitionRecord:
        replicas = self.some()
        partitions = self.topics[topic_id][1]
        partitions.append(len(replicas))
        record = PartitionRecord(
            partition_id=len(partitions) - 1,
            topic_id=topic_id,
            replicas=replicas,
            isr=self.random.choice([replicas, self.some()]),
            removing_replicas=self.some(1),
            adding_replicas=self.some(1),
            leader=self.random.randint(-1, BROKERS - 1),
            leader_epoch=self.random.randint(0, 9),
            partition_epoch=self.random.randint(0, 9),
            directories=self.directories(len(replicas)),
            leader_recovery_state=self.random.randint(0, 1),
        )
        if self.has_elr:
            record.eligible_leader_replicas = self.random.choice([None, self.some()])
            record.last_known_elr = self.random.choice([None, self.some(1)])
        return record

    def partition(self) -> list[object]:
        return [self.new_partition(self.random.choice(list(self.topics)))] if self.topics else self.topic()

    def change(self) -> list[object]:
        there = [topic_id for topic_id, (_, partitions) in self.topics.items() if partitions]
        if not there:
            return self.topic()
        topic_id = self.random.choice(there)
        partitions = self.topics[topic_id][1]
        number = self.random.randrange(len(partitions))
        record = PartitionChangeRecord(partition_id=number, topic_id=topic_id)
        if self.maybe():
            record.isr = self.some()
        if self.maybe():
            record.leader = self.random.randint(-2, BROKERS - 1)
        if self.maybe(0.3):
            record.replicas = self.some()
            partitions[number] = len(record.replicas)
        if record.replicas is not None or self.maybe(0.2):
            # Kafka's controller sets the directories whenever it sets the replicas.
            record.directories = self.directories(partitions[number])
            if self.level < metadata_versions.DIRECTORY_ASSIGNMENT:
                record.directories = None
        if self.maybe(0.3):
            record.removing_replicas, record.adding_replicas = self.some(2), self.random.choice([None, self.some(2)])
        record.leader_recovery_state = self.random.choice((-1, 0, 1))
        if self.has_elr and self.maybe():
            record.eligible_leader_replicas, record.last_known_elr = self.some(), self.random.choice([None, []])
        return [record]

    def remove_topic(self) -> list[object]:
        if not self.topics:
            return self.topic()
        topic_id = self.random.choice(list(self.topics))
        del self.topics[topic_id]
        return [RemoveTopicRecord(topic_id=topic_id)]

    def clear_elr(self) -> list[object]:
        names = [name for name, _ in self.topics.values()]
        return [ClearElrRecord(topic_name=self.random.choice(["", *names]))]

    def config(self) -> list[object]:
        kind, name = self.random.choice([(2, "a"), (2, "b"), (4, ""), (4, "1"), (16, "m"), (32, "g")])
        if kind == 2 and name not in {topic for topic, _ in self.topics.values()}:
            kind, name = 4, "2"
        value = self.random.choice([None, "", "1"])
        return [ConfigRecord(resource_type=kind, resource_name=name, name=self.random.choice("xy"), value=value)]

    def quota(self) -> list[object]:
        kinds = self.random.choice([["user"], ["client-id"], ["user", "client-id"], ["client-id", "user"], ["ip"]])
        entity = [EntityData(entity_type=kind, entity_name=self.random.choice([None, "u"])) for kind in kinds]
        key = self.random.choice(["producer_byte_rate", "consumer_byte_rate"])
        return [ClientQuotaRecord(entity=entity, key=key, value=self.random.randrange(99) / 4, remove=self.maybe(0.3))]

    def producer_ids(self) -> list[object]:
        return [ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=self.random.randrange(10**6))]

    def feature(self) -> list[object]:
        name = self.random.choice(
            [metadata_versions.GROUP_VERSION, metadata_versions.TRANSACTION_VERSION, metadata_versions.KRAFT_VERSION]
        )
        return [FeatureLevelRecord(name=name, feature_level=self.random.randint(0, 2))]

    def acl(self) -> list[object]:
        self.acls.append(self.id())
        return [
            AccessControlEntryRecord(
                id=self.acls[-1],
                resource_type=self.random.randint(2, 6),
                resource_name=self.random.choice(["*", "a", "é"]),
                pattern_type=self.random.randint(3, 4),
                principal="User:alice",
                host="*",
                operation=self.random.randint(2, 12),
                permission_type=self.random.randint(2, 3),
            )
        ]

    def remove_acl(self) -> list[object]:
        if not self.acls:
            return self.acl()
        return [RemoveAccessControlEntryRecord(id=self.acls.pop(self.random.randrange(len(self.acls))))]

    def scram(self) -> list[object]:
        if self.level < metadata_versions.SCRAM:
            return self.nothing()
        name, mechanism = self.random.choice(["u", "v"]), self.random.randint(1, 2)
        if self.maybe(0.3):
            return [RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)]
        salt = self.id()
        return [
            UserScramCredentialRecord(
                name=name, mechanism=mechanism, salt=salt, stored_key=b"k", server_key=b"s", iterations=4096
            )
        ]

    def token(self) -> list[object]:
        if self.level < metadata_versions.DELEGATION_TOKENS:
            return self.nothing()
        token_id = self.random.choice(["t1", "t2"])
        if self.maybe(0.3):
            return [RemoveDelegationTokenRecord(token_id=token_id)]
        return [
            DelegationTokenRecord(
                owner="User:o",
                requester="User:r",
                renewers=["User:a", "User:b"][: self.random.randint(0, 2)],
                issue_timestamp=1,
                max_timestamp=3,
                expiration_timestamp=self.random.randint(1, 3),
                token_id=token_id,
            )
        ]

    def nothing(self) -> list[object]:
        return [self.random.choice([NoOpRecord(), ZkMigrationStateRecord(zk_migration_state=1)])]
