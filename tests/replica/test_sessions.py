"""Incremental fetch sessions, by the rules of KIP-227."""

from itertools import count

import pytest

from ottla.errors import FetchSessionIdNotFound, FetchSessionTopicIdMismatch, InvalidFetchSessionEpoch
from ottla.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from ottla.replica.sessions import Fetch, Session, SessionCache
from ottla.wire.batch import MAX_INT32

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


def answers(fetch: Fetch, **changes: object) -> list[PartitionData]:
    return [
        PartitionData(partition_index=target.request.partition, high_watermark=5, log_start_offset=0, records=b"")
        for target in fetch.targets
    ]


def start(sessions: SessionCache, *partitions: int, now_ms: int = 0) -> int:
    asked = full(*partitions)
    fetch = sessions.begin(asked, VERSION, now_ms)
    session_id, sent = sessions.finish(fetch, asked, VERSION, answers(fetch), now_ms)
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
    """The partitions in the answer to a request that changes nothing."""
    asked = request(session_id=session_id, epoch=epoch)
    fetch = sessions.begin(asked, VERSION, now_ms)
    given = [(changed or {}).get(answer.partition_index, answer) for answer in answers(fetch)]
    _, sent = sessions.finish(fetch, asked, VERSION, given, now_ms)
    return [target.request.partition for target, _ in sent]


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


def test_after_an_error_the_partition_is_told_of_again() -> None:
    sessions = cache()
    session_id = start(sessions, 0, 1)
    error = PartitionData(partition_index=1, error_code=6, high_watermark=-1, log_start_offset=-1, records=b"")
    assert go_on(sessions, session_id, 1, changed={1: error}) == [1]
    assert go_on(sessions, session_id, 2, changed={1: error}) == [1]
    assert go_on(sessions, session_id, 3) == [1]
    assert go_on(sessions, session_id, 4) == []


def test_partitions_are_added_changed_and_forgotten() -> None:
    sessions = cache()
    session_id = start(sessions, 0, 1)
    asked = request((1, 2), session_id=session_id, epoch=1, forget=(0,), offset=7)
    fetch = sessions.begin(asked, VERSION, 0)
    assert [(target.request.partition, target.request.fetch_offset) for target in fetch.targets] == [(1, 7), (2, 7)]


def test_partitions_that_had_data_go_to_the_end() -> None:
    sessions = cache()
    session_id = start(sessions, 0, 1, 2)
    data = {0: PartitionData(partition_index=0, high_watermark=9, log_start_offset=0, records=b"data")}
    go_on(sessions, session_id, 1, changed=data)
    fetch = sessions.begin(request(session_id=session_id, epoch=2), VERSION, 0)
    assert [target.request.partition for target in fetch.targets] == [1, 2, 0]


def test_a_session_without_partitions_ends() -> None:
    sessions = cache()
    session_id = start(sessions, 0)
    asked = request(session_id=session_id, epoch=1, forget=(0,))
    fetch = sessions.begin(asked, VERSION, 0)
    assert sessions.finish(fetch, asked, VERSION, [], 0) == (0, [])
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


def test_a_session_by_names_is_not_gone_on_with_by_ids() -> None:
    sessions = cache()
    session_id = start(sessions, 0)
    with pytest.raises(FetchSessionTopicIdMismatch):
        sessions.begin(request(session_id=session_id, epoch=1), 13, 0)


def test_a_final_epoch_closes_the_session_and_is_answered_in_full() -> None:
    sessions = cache()
    session_id = start(sessions, 0)
    asked = full(0, 1, epoch=-1, session_id=session_id)
    fetch = sessions.begin(asked, VERSION, 0)
    assert [sessions.finish(fetch, asked, VERSION, answers(fetch), 0)[0], len(fetch.targets)] == [0, 2]
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
    sessions.sessions[first].last_used_ms = 1500
    follower = full(0)
    follower.replica_id = 2
    fetch = sessions.begin(follower, VERSION, 1500)
    session_id, _ = sessions.finish(fetch, follower, VERSION, answers(fetch), 1500)
    assert session_id != 0
    kept: Session = sessions.sessions[session_id]
    assert kept.for_follower
    kept.last_used_ms = 3000
    assert start(sessions, 0, 1, 2, now_ms=3000) == 0


def test_versions_before_seven_have_no_sessions() -> None:
    sessions = cache()
    asked = full(0, epoch=-1)
    fetch = sessions.begin(asked, 6, 0)
    assert sessions.finish(fetch, asked, 6, answers(fetch), 0)[0] == 0


def test_a_partition_named_twice_counts_once() -> None:
    sessions = cache()
    asked = FetchRequest(
        session_epoch=0,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0), FetchPartition(partition=0)])],
    )
    assert len(sessions.begin(asked, VERSION, 0).targets) == 1
