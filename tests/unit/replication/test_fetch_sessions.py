"""Incremental fetch sessions, by the rules of KIP-227."""

from itertools import count

import pytest

from ottla.protocol.errors import FetchSessionIdNotFound, FetchSessionTopicIdMismatch, InvalidFetchSessionEpoch
from ottla.protocol.messages.rpc.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.wire.batch import MAX_INT32
from ottla.replication.fetch_sessions import CachedPartition, FetchedPartitions, SessionCache

VERSION = 12


def cache(slots: int = 10) -> SessionCache:
    return SessionCache(slots=slots, eviction_ms=1000, random_id=count(100).__next__)


def full(*partitions: int, topic: str = "t", epoch: int = 0, session_id: int = 0) -> FetchRequest:
    return request(partitions, topic=topic, epoch=epoch, session_id=session_id)


def request(
    partitions: tuple[int, ...] = (),
    *,
    session_id: int,
    epoch: int,
    topic: str = "t",
    forget: tuple[int, ...] = (),
    offset: int = 0,
) -> FetchRequest:
    topics = [
        FetchTopic(topic=topic, partitions=[FetchPartition(partition=p, fetch_offset=offset) for p in partitions])
    ]
    forgotten = [ForgottenTopic(topic=topic, partitions=list(forget))]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else [],
        forgotten_topics_data=forgotten if forget else [],
    )


Read = list[tuple[CachedPartition, PartitionData]]


def read(fetched: FetchedPartitions, changed: dict[int, PartitionData] | None = None) -> Read:
    """What a fetch finds in the partitions that it looks at; by default nothing but offsets."""
    pairs: Read = []
    fetched.sort_changed()
    for cached in fetched.changed:
        number = cached.request.partition
        quiet = PartitionData(partition_index=number, high_watermark=5, log_start_offset=0, records=b"")
        answer = (changed or {}).get(number, quiet)
        cached.is_exhausted = not answer.records and not answer.error_code
        pairs.append((cached, answer))
    return pairs


def start(sessions: SessionCache, *partitions: int, now_ms: int = 0) -> int:
    asked = full(*partitions)
    fetched = sessions.begin(asked, VERSION, now_ms)
    session_id, sent = sessions.finish(fetched, read(fetched), asked, VERSION, now_ms)
    assert len(sent) == len(partitions)
    return session_id


def go_on(
    sessions: SessionCache,
    session_id: int,
    epoch: int,
    *,
    now_ms: int = 0,
    changed: dict[int, PartitionData] | None = None,
) -> list[int]:
    """The partitions in the answer to a request that changes nothing, after some partitions changed."""
    asked = request(session_id=session_id, epoch=epoch)
    for number in changed or ():
        sessions.sessions[session_id].fetched.partitions["t", number].mark()
    fetched = sessions.begin(asked, VERSION, now_ms)
    _, sent = sessions.finish(fetched, read(fetched, changed), asked, VERSION, now_ms)
    return [cached.request.partition for cached, _ in sent]


def numbers(fetched: FetchedPartitions) -> list[int]:
    """The partitions that a fetch is to look at."""
    fetched.sort_changed()
    return [cached.request.partition for cached in fetched.changed]


def test_a_session_answers_only_with_news() -> None:
    sessions = cache()
    session_id = start(sessions, 0, 1, 2)
    assert session_id == 100
    assert go_on(sessions, session_id, 1) == []
    news = {
        0: PartitionData(partition_index=0, high_watermark=6, log_start_offset=0, records=b"x"),
        2: PartitionData(partition_index=2, high_watermark=5, log_start_offset=1, records=b""),
    }
    assert go_on(sessions, session_id, 2, changed=news) == [0, 2]


@pytest.mark.parametrize(
    "news",
    [
        PartitionData(partition_index=1, high_watermark=5, log_start_offset=0, records=b"", preferred_read_replica=3),
        PartitionData(
            partition_index=1, high_watermark=5, log_start_offset=0, records=b"",
            diverging_epoch=EpochEndOffset(epoch=1, end_offset=2),
        ),
    ],
)  # fmt: skip
def test_a_diverging_epoch_and_a_preferred_replica_are_news(news: PartitionData) -> None:
    sessions = cache()
    session_id = start(sessions, 0, 1)
    assert go_on(sessions, session_id, 1, changed={1: news}) == [1]


def test_after_an_error_the_partition_is_sent_again() -> None:
    sessions = cache()
    session_id = start(sessions, 0, 1)
    error = PartitionData(partition_index=1, error_code=6, high_watermark=-1, log_start_offset=-1, records=b"")
    assert go_on(sessions, session_id, 1, changed={1: error}) == [1]
    assert go_on(sessions, session_id, 2, changed={1: error}) == [1]
    assert go_on(sessions, session_id, 3) == [1], "an error is looked for again, and is over"
    assert go_on(sessions, session_id, 4) == []


def test_partitions_are_added_changed_and_forgotten() -> None:
    sessions = cache()
    session_id = start(sessions, 0, 1)
    asked = request((1, 2), session_id=session_id, epoch=1, forget=(0,), offset=7)
    fetched = sessions.begin(asked, VERSION, 0)
    assert [(key[1], cached.request.fetch_offset) for key, cached in fetched.partitions.items()] == [(1, 7), (2, 7)]
    assert numbers(fetched) == [1, 2]


def test_partitions_that_had_data_go_to_the_end() -> None:
    sessions = cache()
    session_id = start(sessions, 0, 1, 2)
    data = {0: PartitionData(partition_index=0, high_watermark=9, log_start_offset=0, records=b"data")}
    go_on(sessions, session_id, 1, changed=data)
    for cached in sessions.sessions[session_id].fetched.partitions.values():
        cached.mark()
    assert numbers(sessions.begin(request(session_id=session_id, epoch=2), VERSION, 0)) == [1, 2, 0]


def test_a_session_without_partitions_ends() -> None:
    sessions = cache()
    session_id = start(sessions, 0)
    asked = request(session_id=session_id, epoch=1, forget=(0,))
    fetched = sessions.begin(asked, VERSION, 0)
    assert sessions.finish(fetched, [], asked, VERSION, 0) == (0, [])
    with pytest.raises(FetchSessionIdNotFound):
        sessions.begin(request(session_id=session_id, epoch=2), VERSION, 0)


def test_a_wrong_epoch_is_refused_and_the_session_lives_on() -> None:
    sessions = cache()
    session_id = start(sessions, 0)
    with pytest.raises(InvalidFetchSessionEpoch, match="at epoch 1, not 2"):
        sessions.begin(request(session_id=session_id, epoch=2), VERSION, 0)
    assert go_on(sessions, session_id, 1) == []


def test_epochs_wrap_to_one() -> None:
    sessions = cache()
    session_id = start(sessions, 0)
    sessions.sessions[session_id].epoch = MAX_INT32
    assert go_on(sessions, session_id, MAX_INT32) == []
    assert sessions.sessions[session_id].epoch == 1


def test_a_session_by_names_cannot_continue_by_ids() -> None:
    sessions = cache()
    session_id = start(sessions, 0)
    with pytest.raises(FetchSessionTopicIdMismatch):
        sessions.begin(request(session_id=session_id, epoch=1), 13, 0)


def test_a_final_epoch_closes_the_session_and_is_answered_in_full() -> None:
    sessions = cache()
    session_id = start(sessions, 0)
    asked = full(0, 1, epoch=-1, session_id=session_id)
    fetched = sessions.begin(asked, VERSION, 0)
    session_id, sent = sessions.finish(fetched, read(fetched), asked, VERSION, 0)
    assert (session_id, len(sent)) == (0, 2)
    assert not sessions.sessions


def test_without_room_a_client_is_answered_in_full_each_time() -> None:
    sessions = cache(slots=1)
    first = start(sessions, 0, 1)
    assert start(sessions, 0, 1, now_ms=500) == 0
    assert go_on(sessions, first, 1, now_ms=500) == []


def test_an_idle_session_makes_room() -> None:
    sessions = cache(slots=1)
    first = start(sessions, 0)
    assert start(sessions, 0, now_ms=1001) != 0
    assert first not in sessions.sessions
    assert sessions.evictions == 1


def test_a_larger_session_takes_the_place_of_a_smaller_one_that_has_lived_a_while() -> None:
    sessions = cache(slots=1)
    first = start(sessions, 0)
    go_on(sessions, first, 1, now_ms=1200)
    assert start(sessions, 0, now_ms=1200) == 0
    assert start(sessions, 0, 1, now_ms=1200) != 0


def test_a_follower_takes_the_place_of_a_consumer_and_never_the_other_way_round() -> None:
    sessions = cache(slots=1)
    first = start(sessions, 0, 1, 2)
    sessions.sessions[first].fetched.used_ms = 1500
    follower = full(0)
    follower.replica_id = 2
    fetched = sessions.begin(follower, VERSION, 1500)
    session_id, _ = sessions.finish(fetched, read(fetched), follower, VERSION, 1500)
    assert session_id != 0
    assert sessions.sessions[session_id].for_follower
    fetched.used_ms = 3000
    assert start(sessions, 0, 1, 2, now_ms=3000) == 0


def test_versions_before_seven_have_no_sessions() -> None:
    sessions = cache()
    asked = full(0, epoch=-1)
    fetched = sessions.begin(asked, 6, 0)
    assert sessions.finish(fetched, read(fetched), asked, 6, 0)[0] == 0


def test_a_partition_named_twice_counts_once() -> None:
    sessions = cache()
    asked = FetchRequest(
        session_epoch=0,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0), FetchPartition(partition=0)])],
    )
    assert len(sessions.begin(asked, VERSION, 0).partitions) == 1


def test_a_fetch_reads_only_changed_partitions() -> None:
    sessions = cache()
    session_id = start(sessions, *range(1000))
    assert go_on(sessions, session_id, 1) == [], "each partition is looked at once more"
    fetched = sessions.sessions[session_id].fetched
    assert fetched.changed == []
    fetched.partitions["t", 700].mark()
    fetched.partitions["t", 20].mark()
    fetched.partitions["t", 700].mark()
    assert numbers(fetched) == [20, 700], "each once, in the order of the session"
    data = PartitionData(partition_index=20, high_watermark=6, log_start_offset=0, records=b"data")
    assert go_on(sessions, session_id, 2, changed={20: data}) == [20]
    assert numbers(fetched) == [20], "there may be more where there were records"
    asked = request((500,), session_id=session_id, epoch=3, offset=3, forget=(20,))
    assert numbers(sessions.begin(asked, VERSION, 0)) == [500], "a partition that the client describes again"


def test_an_unsent_answer_is_sent_again() -> None:
    sessions = cache()
    session_id = start(sessions, 0, 1)
    go_on(sessions, session_id, 1)
    news = PartitionData(partition_index=1, high_watermark=6, log_start_offset=0, records=b"")
    assert go_on(sessions, session_id, 2, changed={1: news}) == [1]
    topic = FetchableTopicResponse(topic="t", partitions=[news])
    response = FetchResponse(session_id=session_id, responses=[topic])
    assert sessions.take_back(request(session_id=session_id, epoch=2), response) == session_id
    asked = request(session_id=session_id, epoch=3)
    fetched = sessions.begin(asked, VERSION, 0)
    _, sent = sessions.finish(fetched, read(fetched, {1: news}), asked, VERSION, 0)
    assert [cached.request.partition for cached, _ in sent] == [1]


def of_follower(*partitions: int, broker_epoch: int, replica: int = 2) -> FetchRequest:
    topics = [FetchTopic(topic_id=bytes(16), partitions=[FetchPartition(partition=number) for number in partitions])]
    state = ReplicaState(replica_id=replica, replica_epoch=broker_epoch)
    return FetchRequest(session_epoch=0, topics=topics, replica_state=state)


def test_the_sessions_that_a_follower_had_before_it_was_started_again_end() -> None:
    """Nobody else would end them before all slots are taken, and each append would go on to notify them."""
    sessions = cache()
    for replica, epoch in ((2, 5), (2, 5), (3, 4), (2, 6)):
        asked = of_follower(0, 1, broker_epoch=epoch, replica=replica)
        fetched = sessions.begin(asked, 17, 0)
        sessions.finish(fetched, read(fetched), asked, 17, 0)
    consumer = start(sessions, 0)
    known = [(session.fetched.replica, session.broker_epoch) for session in sessions.sessions.values()]
    assert known == [(3, 4), (2, 6), (-1, -1)]
    assert consumer in sessions.sessions
