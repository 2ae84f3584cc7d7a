"""Topics for clients, and what their groups have committed, as another client sees it."""

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.ottla_node import OttlaNode

TIMEOUT_S = 60


def create(node: OttlaNode, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": node.address})
    (made,) = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values()
    made.result(TIMEOUT_S)


def committed(node: OttlaNode, group: str, topic: str, partitions: int) -> list[int]:
    """The offset of each partition; negative where there is none."""
    reader = Consumer({"bootstrap.servers": node.address, "group.id": group})
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    offsets = [each.offset for each in reader.committed(asked, timeout=TIMEOUT_S)]
    reader.close()
    return offsets
