"""A fetch session sends only changes, and all partitions after it is lost."""

from ottla.client.fetch_session import FetchSession, PartitionFetch
from ottla.protocol.messages.rpc.fetch import FetchTopic, ForgottenTopic

ID, OTHER_ID = b"a" * 16, b"b" * 16
A, B = PartitionFetch(ID, 5, 1, 100), PartitionFetch(ID, 7, 1, 100)


def offsets_and_forgotten(request: tuple[list[FetchTopic], list[ForgottenTopic]]) -> tuple[dict[int, int], list[int]]:
    topics, forgotten = request
    return (
        {part.partition: part.fetch_offset for topic in topics for part in topic.partitions},
        [number for topic in forgotten for number in topic.partitions],
    )


def test_after_the_first_request_only_changes_are_sent() -> None:
    session = FetchSession(enabled=True)
    assert (session.id, session.epoch) == (0, 0)
    assert offsets_and_forgotten(session.request({("t", 0): A, ("t", 1): B})) == ({0: 5, 1: 7}, [])
    session.advance(42)
    assert (session.id, session.epoch) == (42, 1)
    assert offsets_and_forgotten(session.request({("t", 0): A, ("t", 1): B._replace(offset=8)})) == ({1: 8}, [])
    session.advance(42)
    assert offsets_and_forgotten(session.request({("t", 1): B._replace(offset=8)})) == ({}, [0])


def test_a_recreated_topic_replaces_the_old_one() -> None:
    session = FetchSession(enabled=True)
    session.request({("t", 0): A})
    session.advance(42)
    topics, forgotten = session.request({("t", 0): A._replace(topic_id=OTHER_ID)})
    assert [(topic.topic_id, topic.partitions) for topic in forgotten] == [(ID, [0])]
    assert [topic.topic_id for topic in topics] == [OTHER_ID]


def test_a_new_session_starts_with_all_partitions() -> None:
    session = FetchSession(enabled=True)
    session.request({("t", 0): A})
    session.advance(42)
    session.reset()
    assert (session.id, session.epoch) == (0, 0)
    assert offsets_and_forgotten(session.request({("t", 0): A})) == ({0: 5}, [])
    session.advance(0)  # the node has no room for the session
    assert offsets_and_forgotten(session.request({("t", 0): A})) == ({0: 5}, [])


def test_without_sessions_every_request_names_all_partitions() -> None:
    session = FetchSession(enabled=False)
    for _ in range(2):
        assert offsets_and_forgotten(session.request({("t", 0): A})) == ({0: 5}, [])
        session.advance(0)
        assert (session.id, session.epoch) == (0, -1)
