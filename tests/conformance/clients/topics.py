"""Creates topics for clients, and reads the committed offsets of their groups."""

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.ottla_node import OttlaNode

TIMEOUT_S = 60


def create_topic(node: OttlaNode, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": node.address})
    (future,) = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values()
    future.result(TIMEOUT_S)


def read_committed_offsets(node: OttlaNode, group: str, topic: str, partitions: int) -> list[int]:
    """Return the committed offset of each partition; a negative one means that the group has not committed."""
    reader = Consumer({"bootstrap.servers": node.address, "group.id": group})
    queried = [TopicPartition(topic, partition) for partition in range(partitions)]
    offsets = [position.offset for position in reader.committed(queried, timeout=TIMEOUT_S)]
    reader.close()
    return offsets
