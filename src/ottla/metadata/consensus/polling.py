"""Time-driven work of each role: the requests it sends and its timeouts. Each function returns the next deadline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.metadata.consensus import requests
from ottla.metadata.consensus.leader import Leader
from ottla.metadata.consensus.raft_state import RaftState
from ottla.metadata.consensus.replication import serve_fetch
from ottla.metadata.consensus.roles import Candidate, Follower, Prospective, Resigned, Unattached
from ottla.metadata.consensus.voter_changes import expire_change
from ottla.metadata.consensus.voters import RECONFIGURABLE, Node, ReplicaKey, find_endpoint
from ottla.protocol.messages.rpc.fetch import FetchRequest

NEVER = 1 << 62
_MOST_TRANSITIONS = 8


def poll(raft: RaftState, now_ms: int) -> int:
    """Run the role, and the roles that follow from it, until nothing is due. Return the next deadline."""
    for _ in range(_MOST_TRANSITIONS):
        if raft.is_stopped or _finish_stop(raft, now_ms):
            return NEVER
        role = raft.role
        if isinstance(role, Leader):
            deadline = _poll_leader(raft, role, now_ms)
        elif isinstance(role, Candidate | Prospective):
            deadline = _poll_nominee(raft, role, now_ms)
        elif isinstance(role, Follower):
            deadline = _poll_follower(raft, role, now_ms)
        elif isinstance(role, Unattached):
            deadline = _poll_unattached(raft, role, now_ms)
        else:
            deadline = _poll_resigned(raft, role, now_ms)
        if raft.role is role:
            return deadline if raft.stop_deadline is None else min(deadline, raft.stop_deadline)
    return now_ms


def _finish_stop(raft: RaftState, now_ms: int) -> bool:
    """Stop gracefully if another node leads or no other node can; stop anyway at the deadline."""
    if raft.stop_deadline is None:
        return False
    other_leads = raft.role.leader_id not in (-1, raft.config.local.id)
    if not raft.is_voter or raft.voters.is_only_voter(raft.config.local) or other_leads:
        raft.stop(graceful=True)
    elif raft.stop_deadline <= now_ms:
        raft.stop(graceful=False)
    return raft.is_stopped


def _poll_leader(raft: RaftState, leader: Leader, now_ms: int) -> int:
    has_lost_quorum = leader.checks_quorum and leader.check_quorum_deadline <= now_ms
    if raft.is_stopping or leader.resign_requested or has_lost_quorum:
        raft.become_resigned(now_ms)
        return now_ms
    expire_change(raft, now_ms)
    due = [fetch for fetch in leader.waiting_fetches if fetch.deadline <= now_ms]
    leader.waiting_fetches = [fetch for fetch in leader.waiting_fetches if fetch.deadline > now_ms]
    for fetch in due:
        assert isinstance(fetch.request, FetchRequest)
        raft.reply(fetch.ticket, serve_fetch(raft, fetch.request, fetch.version, fetch.listener, now_ms)[0])
    interval_ms = raft.config.fetch_timeout_ms // 2
    if leader.begin_epoch_at <= now_ms:
        for key in leader.silent_voters(now_ms, interval_ms):
            _send_to_voter(raft, key, partial(requests.begin_epoch, raft.config, leader.epoch, key), now_ms)
        leader.begin_epoch_at = now_ms + interval_ms
    deadlines = [leader.begin_epoch_at, *(fetch.deadline for fetch in leader.waiting_fetches)]
    if leader.checks_quorum:
        deadlines.append(leader.check_quorum_deadline)
    if leader.change is not None:
        deadlines.append(leader.change.deadline)
    return min(deadlines)


def _poll_nominee(raft: RaftState, role: Candidate | Prospective, now_ms: int) -> int:
    if not raft.is_stopping and role.election_deadline <= now_ms:
        if isinstance(role, Prospective):
            raft.end_pre_vote(now_ms)
        elif raft.can_stand:
            raft.become_prospective(now_ms)
        else:
            raft.become_unattached(role.epoch, -1, now_ms)
        return now_ms
    deadline = NEVER if raft.is_stopping else role.election_deadline
    if role.tally.is_lost:
        return deadline
    pre_vote = isinstance(role, Prospective)
    for key in role.tally.pending:
        ready = _send_to_voter(
            raft,
            key,
            partial(requests.vote, raft.config, raft.log, role.epoch, key, pre_vote=pre_vote),
            now_ms,
        )
        deadline = min(deadline, ready)
    return deadline


def _send_to_voter(raft: RaftState, key: ReplicaKey, build: Callable[[], object], now_ms: int) -> int:
    """Send a request to a voter unless one is in flight. Return when the next one can be sent."""
    node = raft.voters.node(key.id, raft.config.listener)
    if node is None:
        return NEVER
    if raft.in_flight.ready_at(node.id, now_ms) <= now_ms:
        raft.send(node, build(), now_ms)
    return raft.in_flight.ready_at(node.id, now_ms)


def _poll_resigned(raft: RaftState, role: Resigned, now_ms: int) -> int:
    if not raft.is_stopping and role.election_deadline <= now_ms:
        # It can neither vote nor follow in the epoch that it led, so it moves to the next epoch.
        raft.become_unattached(role.epoch + 1, -1, now_ms)
        return now_ms
    deadline = NEVER if raft.is_stopping else role.election_deadline
    for voter_id in sorted(role.unacknowledged):
        build = lambda: requests.end_epoch(raft.config, role.epoch, role.successors)  # noqa: E731
        deadline = min(deadline, _send_to_voter(raft, ReplicaKey(voter_id), build, now_ms))
    return deadline


def _poll_unattached(raft: RaftState, role: Unattached, now_ms: int) -> int:
    deadline = NEVER
    if raft.can_stand:
        if raft.is_stopping:
            return NEVER
        if role.election_deadline is None:
            role.election_deadline = now_ms + raft.random_election_timeout()
        if role.election_deadline <= now_ms:
            raft.become_prospective(now_ms)
            return now_ms
        deadline = role.election_deadline
    return min(deadline, _fetch_from_bootstrap_server(raft, now_ms))


def _poll_follower(raft: RaftState, role: Follower, now_ms: int) -> int:
    if raft.is_stopping:
        return now_ms
    deadline = NEVER
    node = _leader_node(raft, role)
    if raft.can_stand:
        if role.fetch_deadline <= now_ms:
            raft.become_prospective(now_ms)
            return now_ms
        deadline = role.fetch_deadline
    if role.update_voter_at <= now_ms:
        message = _voter_update(raft, role) if raft.is_voter else _auto_join_request(raft)
        if message is None:
            role.update_voter_at = now_ms + raft.config.fetch_timeout_ms
        elif raft.in_flight.ready_at(node.id, now_ms) <= now_ms:
            raft.send(node, message, now_ms)
            role.update_voter_at = now_ms + raft.config.fetch_timeout_ms
    if role.update_voter_at > now_ms:  # otherwise it is sent after the response that is in flight
        deadline = min(deadline, role.update_voter_at)
    return min(deadline, _fetch(raft, role, node, now_ms))


def _leader_node(raft: RaftState, role: Follower) -> Node:
    endpoint = find_endpoint(role.leader_endpoints, raft.config.listener)
    assert endpoint is not None, "a follower knows its leader's endpoint"
    return Node(role.leader_id, endpoint.host, endpoint.port)


def _voter_update(raft: RaftState, role: Follower) -> object | None:
    """Return the UpdateRaftVoter to send, if any.

    A voter sends it if its description in the log is out of date, and at kraft.version 0 once to each leader.
    """
    if raft.history.kraft_version >= RECONFIGURABLE:
        needed = raft.voters.needs_update(raft.config.local_voter)
    else:
        needed = not role.has_updated_leader
    return requests.update_voter(raft.config, role.epoch) if needed else None


def _auto_join_request(raft: RaftState) -> object | None:
    """Return the request by which a controller joins the voters: first remove its old directory, then add the new."""
    config = raft.config
    if not (config.auto_join and config.can_become_voter and raft.history.kraft_version >= RECONFIGURABLE):
        return None
    old = raft.voters.by_id.get(config.local.id)
    return requests.add_voter(config) if old is None else requests.remove_voter(config, old.key)


def _fetch(raft: RaftState, role: Follower, node: Node, now_ms: int) -> int:
    """Fetch from the leader. If it does not respond, fetch from a bootstrap server, which names a new leader."""
    if role.snapshot is not None and role.snapshot.installing:
        return NEVER
    is_durable = raft.flushed_offset >= raft.log.end_offset and not raft.out.writes
    if not is_durable and (raft.is_voter or raft.config.can_become_voter):
        return NEVER
    if raft.out.writes:
        return NEVER  # the writes of this step move the log's end; `report_appended` follows
    if raft.in_flight.has_timed_out(node.id, now_ms) or raft.in_flight.is_backing_off(node.id, now_ms):
        return _fetch_from_bootstrap_server(raft, now_ms)
    in_flight = raft.in_flight.next_timeout(now_ms)
    if in_flight is not None:
        return in_flight
    if role.snapshot is not None:
        fetching = role.snapshot
        raft.send(node, requests.fetch_snapshot(raft.config, role.epoch, fetching.snapshot, fetching.position), now_ms)
    else:
        raft.send(node, _fetch_request(raft), now_ms)
    return raft.in_flight.ready_at(node.id, now_ms)


def _fetch_from_bootstrap_server(raft: RaftState, now_ms: int) -> int:
    in_flight = raft.in_flight.next_timeout(now_ms)
    if in_flight is not None:
        return in_flight
    node = raft.in_flight.pick_bootstrap_server(now_ms)
    if node is None:
        ready = raft.in_flight.bootstrap_server_ready_at(now_ms)
        return NEVER if ready is None else max(ready, now_ms + 1)
    raft.send(node, _fetch_request(raft), now_ms)
    return raft.in_flight.ready_at(node.id, now_ms)


def _fetch_request(raft: RaftState) -> FetchRequest:
    """Return the next Fetch. After a lost connection it does not wait, to learn at once whether the leader is back."""
    role = raft.role
    is_lost = isinstance(role, Follower) and role.is_leader_lost
    max_wait_ms = 0 if is_lost else raft.config.fetch_max_wait_ms
    return requests.fetch(raft.config, raft.log, role.epoch, role.high_watermark, max_wait_ms=max_wait_ms)
