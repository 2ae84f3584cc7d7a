"""The file `quorum-state`: epoch, leader and vote of a quorum member, as JSON in Kafka's format."""

import json
from typing import Any, Final

from ottla.protocol.messages.records.raft_records import QuorumState, QuorumStateVoter
from ottla.storage.directories.node_files import MalformedFile, parse_id, show_id
from ottla.storage.disk import Disk, read_file, replace_file

QUORUM_STATE: Final = "quorum-state"


def read_quorum_state(disk: Disk, directory: str) -> QuorumState | None:
    """Read the file, or return None if it does not exist. Raise MalformedFile."""
    path = f"{directory}/{QUORUM_STATE}"
    try:
        content = read_file(disk, path)
    except FileNotFoundError:
        return None
    try:
        stored: dict[str, Any] = json.loads(content)
        version = stored["data_version"]
        if version not in (0, 1):
            raise MalformedFile(path, f"data_version {version} is not supported; 0 and 1 are")
        state = QuorumState(
            leader_id=stored["leaderId"], leader_epoch=stored["leaderEpoch"], voted_id=stored["votedId"]
        )
        if version == 0:
            state.cluster_id = stored.get("clusterId", "")
            state.applied_offset = stored.get("appliedOffset", 0)
            voters = stored.get("currentVoters") or []
            state.current_voters = [QuorumStateVoter(voter_id=voter["voterId"]) for voter in voters]
        else:
            state.voted_directory_id = parse_id(stored["votedDirectoryId"], path)
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedFile(path, f"cannot be read: {error!r}") from error
    return state


def write_quorum_state(disk: Disk, directory: str, state: QuorumState, version: int) -> None:
    """Write the file durably."""
    stored: dict[str, Any] = {}
    if version == 0:
        stored["clusterId"] = state.cluster_id
    stored |= {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
    if version == 0:
        stored["appliedOffset"] = state.applied_offset
        stored["currentVoters"] = [{"voterId": voter.voter_id} for voter in state.current_voters or []]
    else:
        stored["votedDirectoryId"] = show_id(state.voted_directory_id)
    stored["data_version"] = version
    replace_file(disk, f"{directory}/{QUORUM_STATE}", json.dumps(stored, separators=(",", ":")).encode())
