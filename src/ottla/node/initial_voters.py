"""Parses the initial voters of a quorum that keeps its members in the log (KIP-853).

The text is a list of `id@host:port:directory id` with commas; an IPv6 host is in brackets. All nodes must be given the
same text, because it has the directory ids of the voters.
"""

import base64
import binascii
import ipaddress
import re

from ottla.metadata.consensus.voters import Endpoint, ReplicaKey, Voter, VoterSet

KRAFT_VERSIONS = (0, 1)
"""The levels of kraft.version that this release supports."""
_voter = re.compile(r"([0-9]{1,10})@(?:\[([^\]]*)\]|([^:\[\]]*)):([0-9]{1,5}):([A-Za-z0-9_-]{22})").fullmatch
_MAX_ID = (1 << 31) - 1


class InvalidVoters(Exception):
    """The text is not a valid list of voters."""


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """Return the voters in a text, with their addresses on this listener. Raise InvalidVoters."""
    voters = [_parse(item.strip(), listener) for item in text.strip().split(",") if item]
    ids = [voter.key.id for voter in voters]
    if not voters:
        raise InvalidVoters("no initial controllers given")
    if duplicate := next((str(voter_id) for voter_id in ids if ids.count(voter_id) > 1), None):
        raise InvalidVoters(f"initial controller {duplicate} is given more than once")
    return VoterSet.from_voters(voters)


def make_voter(node_id: int, host: str, port: int, directory: bytes, listener: str) -> Voter:
    endpoint = Endpoint(listener.upper(), _written_out(host), port)
    return Voter(ReplicaKey(node_id, directory), (endpoint,), KRAFT_VERSIONS)


def _written_out(host: str) -> str:
    """Write all eight groups of an IPv6 address, as Java does: voters are compared by the text of their host."""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    scope = f"%{address.scope_id}" if address.scope_id else ""
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.partition("%")[0].split(":")) + scope


def _parse(text: str, listener: str) -> Voter:
    found = _voter(text)
    if found is None or int(found[1]) > _MAX_ID or int(found[4]) > 65_535:
        raise InvalidVoters(
            f"initial controller {text!r} does not look like 1@host:9093:JEXY6aqzQY-32P5TStzaFg (node id, host, port,"
            " directory id)"
        )
    try:
        directory = base64.urlsafe_b64decode(found[5] + "==")
    except binascii.Error:
        raise InvalidVoters(f"directory id {found[5]} of an initial controller is not base64") from None
    return make_voter(int(found[1]), found[2] if found[2] is not None else found[3], int(found[4]), directory, listener)
