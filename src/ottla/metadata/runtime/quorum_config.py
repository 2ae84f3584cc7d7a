"""The quorum configuration of a node, from its settings.

With `controller.quorum.voters` the setting has the voters. With `controller.quorum.bootstrap.servers` the voters are in
the metadata log (KIP-853), and a node without a leader asks the servers for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla import __version__
from ottla.config.node_settings import NodeSettings
from ottla.metadata.consensus.config import ConsensusConfig
from ottla.metadata.consensus.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet


def build_consensus_config(
    settings: NodeSettings, cluster_id: str, directory_id: bytes, ports: Mapping[str, int]
) -> ConsensusConfig:
    """Build the configuration of this node as a quorum member. A broker has no controller listener and never votes."""
    name = settings.controller_listener_names[0]
    own = next((listener for listener in settings.advertised_controllers if listener.name == name), None)
    endpoints = () if own is None else (Endpoint(name, own.host or "localhost", own.port or ports.get(name, 0)),)
    return ConsensusConfig(
        local=ReplicaKey(settings.node_id, directory_id),
        cluster_id=cluster_id,
        listener=name,
        endpoints=endpoints,
        bootstrap=_bootstrap(settings),
        can_become_voter=settings.is_controller,
        auto_join=settings.flag("controller.quorum.auto.join.enable"),
        software_version=__version__,
        election_timeout_ms=settings.number("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=settings.number("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=settings.number("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=settings.number("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=settings.number("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=settings.number("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=settings.number("controller.quorum.fetch.snapshot.max.bytes"),
    )


def static_voters(settings: NodeSettings) -> VoterSet | None:
    """Return the voters of `controller.quorum.voters`, or None if the log has them."""
    name = settings.controller_listener_names[0]
    if not settings.quorum_voters:
        return None
    return VoterSet.from_voters(
        Voter(ReplicaKey(voter), (Endpoint(name, address.host, address.port),))
        for voter, address in settings.quorum_voters.items()
    )


def _bootstrap(settings: NodeSettings) -> tuple[Node, ...]:
    if settings.quorum_voters:
        return tuple(Node(voter, address.host, address.port) for voter, address in settings.quorum_voters.items())
    servers = enumerate(settings.quorum_bootstrap_servers)
    return tuple(Node(-2 - number, address.host, address.port) for number, address in servers)
