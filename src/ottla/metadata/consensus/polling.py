"""What each role does on its own as time passes: who it asks, and when it gives up. Each answers when to look again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.metadata.consensus import requests
from ottla.metadata.consensus.core import Core
from ottla.metadata.consensus.leading import Leader
from ottla.metadata.consensus.membership import expire_change
from ottla.metadata.consensus.replication import serve_fetch
from ottla.metadata.consensus.states import Candidate, Follower, Prospective, Resigned, Unattached
from ottla.metadata.consensus.voters import RECONFIGURABLE, Node, ReplicaKey, address
from ottla.protocol.messages.rpc.fetch import FetchRequest

NEVER = 1 << 62
_MOST_TRANSITIONS = 8


def poll(core: Core, now_ms: int) -> int:
    """Run the present role, and those it leads to, until there is nothing more to do now."""
    for _ in range(_MOST_TRANSITIONS):
        if core.stopped or _finish_stop(core, now_ms):
            return NEVER
        state = core.state
        if isinstance(state, Leader):
            deadline = _poll_leader(core, state, now_ms)
        elif isinstance(state, Candidate | Prospective):
            deadline = _poll_nominee(core, state, now_ms)
        elif isinstance(state, Follower):
            deadline = _poll_follower(core, state, now_ms)
        elif isinstance(state, Unattached):
            deadline = _poll_unattached(core, state, now_ms)
        else:
            deadline = _poll_resigned(core, state, now_ms)
        if core.state is state:
            return deadline if core.stop_deadline is None else min(deadline, core.stop_deadline)
    return now_ms


def _finish_stop(core: Core, now_ms: int) -> bool:
    """A stop is graceful as soon as somebody else leads, or nobody else could."""
    if core.stop_deadline is None:
        return False
    elsewhere = core.state.leader_id not in (-1, core.config.local.id)
    if not core.is_voter or core.voters.is_only_voter(core.config.local) or elsewhere:
        core.stop(graceful=True)
    elif core.stop_deadline <= now_ms:
        core.stop(graceful=False)
    return core.stopped


def _poll_leader(core: Core, leader: Leader, now_ms: int) -> int:
    lost = leader.checks_quorum and leader.check_quorum_deadline <= now_ms
    if core.stopping or leader.resign_requested or lost:
        core.become_resigned(now_ms)
        return now_ms
    expire_change(core, now_ms)
    due = [fetch for fetch in leader.parked if fetch.deadline <= now_ms]
    leader.parked = [fetch for fetch in leader.parked if fetch.deadline > now_ms]
    for fetch in due:
        assert isinstance(fetch.request, FetchRequest)
        core.reply(fetch.ticket, serve_fetch(core, fetch.request, fetch.version, fetch.listener, now_ms)[0])
    every_ms = core.config.fetch_timeout_ms // 2
    if leader.begin_epoch_at <= now_ms:
        for key in leader.silent_voters(now_ms, every_ms):
            _ask_voter(core, key, partial(requests.begin_epoch, core.config, leader.epoch, key), now_ms)
        leader.begin_epoch_at = now_ms + every_ms
    waits = [leader.begin_epoch_at, *(fetch.deadline for fetch in leader.parked)]
    if leader.checks_quorum:
        waits.append(leader.check_quorum_deadline)
    if leader.change is not None:
        waits.append(leader.change.deadline)
    return min(waits)


def _poll_nominee(core: Core, state: Candidate | Prospective, now_ms: int) -> int:
    if not core.stopping and state.election_deadline <= now_ms:
        if isinstance(state, Prospective):
            core.give_up_pre_vote(now_ms)
        elif core.may_stand:
            core.become_prospective(now_ms)
        else:
            core.become_unattached(state.epoch, -1, now_ms)
        return now_ms
    deadline = NEVER if core.stopping else state.election_deadline
    if state.tally.is_lost:
        return deadline
    pre_vote = isinstance(state, Prospective)
    for key in state.tally.open:
        ready = _ask_voter(
            core,
            key,
            partial(requests.vote, core.config, core.log, state.epoch, key, pre_vote=pre_vote),
            now_ms,
        )
        deadline = min(deadline, ready)
    return deadline


def _ask_voter(core: Core, key: ReplicaKey, build: Callable[[], object], now_ms: int) -> int:
    """Send to a voter unless it has a request already; when it can be asked again."""
    node = core.voters.node(key.id, core.config.listener)
    if node is None:
        return NEVER
    if core.peers.ready_at(node.id, now_ms) <= now_ms:
        core.send(node, build(), now_ms)
    return core.peers.ready_at(node.id, now_ms)


def _poll_resigned(core: Core, state: Resigned, now_ms: int) -> int:
    if not core.stopping and state.election_deadline <= now_ms:
        # In the epoch that it led it may neither vote nor follow, so it goes on to the next.
        core.become_unattached(state.epoch + 1, -1, now_ms)
        return now_ms
    deadline = NEVER if core.stopping else state.election_deadline
    for voter_id in sorted(state.unacknowledged):
        build = lambda: requests.end_epoch(core.config, state.epoch, state.successors)  # noqa: E731
        deadline = min(deadline, _ask_voter(core, ReplicaKey(voter_id), build, now_ms))
    return deadline


def _poll_unattached(core: Core, state: Unattached, now_ms: int) -> int:
    deadline = NEVER
    if core.may_stand:
        if core.stopping:
            return NEVER
        if state.election_deadline is None:
            state.election_deadline = now_ms + core.random_election_timeout()
        if state.election_deadline <= now_ms:
            core.become_prospective(now_ms)
            return now_ms
        deadline = state.election_deadline
    return min(deadline, _fetch_from_anybody(core, now_ms))


def _poll_follower(core: Core, state: Follower, now_ms: int) -> int:
    if core.stopping:
        return now_ms
    deadline = NEVER
    node = _leader_node(core, state)
    if core.may_stand:
        if state.fetch_deadline <= now_ms:
            core.become_prospective(now_ms)
            return now_ms
        deadline = state.fetch_deadline
    if state.update_voter_at <= now_ms:
        message = _wish_of_voter(core, state) if core.is_voter else _wish_of_observer(core)
        if message is None:
            state.update_voter_at = now_ms + core.config.fetch_timeout_ms
        elif core.peers.ready_at(node.id, now_ms) <= now_ms:
            core.send(node, message, now_ms)
            state.update_voter_at = now_ms + core.config.fetch_timeout_ms
    if state.update_voter_at > now_ms:  # else it goes out when the leader has answered what it was asked last
        deadline = min(deadline, state.update_voter_at)
    return min(deadline, _fetch(core, state, node, now_ms))


def _leader_node(core: Core, state: Follower) -> Node:
    at = address(state.leader_endpoints, core.config.listener)
    assert at is not None, "nobody follows a leader without an address"
    return Node(state.leader_id, at.host, at.port)


def _wish_of_voter(core: Core, state: Follower) -> object | None:
    """A voter corrects what the log says of it; with kraft.version 0 each new leader is told once."""
    if core.history.kraft_version >= RECONFIGURABLE:
        needed = core.voters.needs_update(core.config.local_voter)
    else:
        needed = not state.has_updated_leader
    return requests.update_voter(core.config, state.epoch) if needed else None


def _wish_of_observer(core: Core) -> object | None:
    """A controller that may join by itself asks for it, after it had its old directory removed."""
    config = core.config
    if not (config.auto_join and config.can_become_voter and core.history.kraft_version >= RECONFIGURABLE):
        return None
    old = core.voters.by_id.get(config.local.id)
    return requests.add_voter(config) if old is None else requests.remove_voter(config, old.key)


def _fetch(core: Core, state: Follower, node: Node, now_ms: int) -> int:
    """Fetch from the leader; when it does not answer, ask any other whether there is a new one."""
    if state.snapshot is not None and state.snapshot.installing:
        return NEVER
    durable = core.flushed_offset >= core.log.end_offset and not core.out.writes
    if not durable and (core.is_voter or core.config.can_become_voter):
        return NEVER
    if core.out.writes:
        return NEVER  # the log's end is not where it will be; `appended` comes next
    if core.peers.timed_out(node.id, now_ms) or core.peers.is_backing_off(node.id, now_ms):
        return _fetch_from_anybody(core, now_ms)
    in_flight = core.peers.any_in_flight(now_ms)
    if in_flight is not None:
        return in_flight
    if state.snapshot is not None:
        wanted = state.snapshot
        core.send(node, requests.fetch_snapshot(core.config, state.epoch, wanted.snapshot, wanted.position), now_ms)
    else:
        core.send(node, _fetch_request(core), now_ms)
    return core.peers.ready_at(node.id, now_ms)


def _fetch_from_anybody(core: Core, now_ms: int) -> int:
    in_flight = core.peers.any_in_flight(now_ms)
    if in_flight is not None:
        return in_flight
    node = core.peers.pick_bootstrap(now_ms)
    if node is None:
        ready = core.peers.bootstrap_ready_at(now_ms)
        return NEVER if ready is None else max(ready, now_ms + 1)
    core.send(node, _fetch_request(core), now_ms)
    return core.peers.ready_at(node.id, now_ms)


def _fetch_request(core: Core) -> FetchRequest:
    """Who lost the leader wants to know at once whether it is there again."""
    state = core.state
    is_lost = isinstance(state, Follower) and state.is_leader_lost
    max_wait_ms = 0 if is_lost else core.config.fetch_max_wait_ms
    return requests.fetch(core.config, core.log, state.epoch, state.high_watermark, max_wait_ms=max_wait_ms)
