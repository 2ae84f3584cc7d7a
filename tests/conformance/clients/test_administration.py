"""The admin clients of all client libraries create, describe, change and delete a topic."""

import pytest
from confluent_kafka.admin import AdminClient

from tests.conformance.clients.running import CLIENTS, Client, Programs
from tests.support.ottla_node import OttlaNode


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_topic_is_created_changed_and_deleted(node: OttlaNode, programs: Programs, client: Client) -> None:
    topic = f"administered-{client.name}"
    answer = programs[client].ask("administer", address=node.address, topic=topic)
    assert answer.seen == ("1234000", "999000", "4")
    assert topic not in AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=60).topics
