"""Formatting: which files a new node gets, what they contain, and what is never overwritten."""

import base64
import errno
import hashlib
import hmac
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from ottla.metadata.consensus.voters import ReplicaKey, VoterSet
from ottla.metadata.image.encoding import entries
from ottla.node.formatting import FormattingRefused, format_directories, read_bootstrap
from ottla.node.initial_credentials import InvalidCredential, credential_record
from ottla.node.initial_features import release_named
from ottla.node.settings_loader import NodeSettings, load_settings
from ottla.protocol.features import FEATURES
from ottla.protocol.messages.records.metadata_records import FeatureLevelRecord, UserScramCredentialRecord
from ottla.protocol.messages.records.raft_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.metadata_versions import METADATA_VERSIONS
from ottla.protocol.wire.batch import read_batches
from ottla.storage.directories.node_files import MalformedFile, NodeMeta, read_meta, show_id, write_meta
from ottla.storage.directories.random_ids import random_cluster_id, random_id
from ottla.storage.disk import SystemDisk
from tests.support.simulated_disk import PowerLoss, SimulatedDisk, Survival

CLUSTER_ID = "b3R0bGEtaW50ZXJvcC0xMA"
OTHER_CLUSTER_ID = "b3R0bGEtaW50ZXJvcC0xMQ"
DISK = SystemDisk()
TWO_DIRECTORIES = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
DYNAMIC: Mapping[str, str] = {}
STATIC = {"controller.quorum.voters": "1@localhost:9093"}


def node(folder: Path, given: Mapping[str, str], directories: str = "a") -> NodeSettings:
    paths = ",".join(f"{folder}/{name}" for name in directories.split(","))
    return load_settings(None, {"log.dirs": paths, **given})


def meta_of(directory: Path) -> NodeMeta:
    meta = read_meta(DISK, str(directory))
    assert meta is not None
    return meta


def messages_in(path: Path) -> list[object]:
    content = path.read_bytes()
    return [entry[3] if header.is_control else entry[2]
            for pos, header in read_batches(content) for entry in entries(content, pos, header)]  # fmt: skip


def features_of(directory: Path) -> dict[str, int]:
    records = read_bootstrap(DISK, str(directory))
    return {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}


def test_every_directory_gets_its_own_id(tmp_path: Path) -> None:
    settings = node(tmp_path, {**STATIC, "metadata.log.dir": f"{tmp_path}/m"}, "a,b")
    formatted = format_directories(settings, CLUSTER_ID)
    assert formatted.directories == (
        (f"{tmp_path}/m", "metadata directory"),
        (f"{tmp_path}/a", "data directory"),
        (f"{tmp_path}/b", "data directory"),
    )
    metas = [meta_of(tmp_path / name) for name in "abm"]
    assert {(meta.cluster_id, meta.node_id) for meta in metas} == {(CLUSTER_ID, 1)}
    assert len({meta.directory_id for meta in metas} - {None}) == 3
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["bootstrap.checkpoint", "meta.properties"]


def test_the_newest_release_is_the_default(tmp_path: Path) -> None:
    assert format_directories(node(tmp_path, STATIC), CLUSTER_ID).release.name == "4.3-IV0"
    assert features_of(tmp_path / "a") == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }


def test_an_old_release_starts_with_its_features(tmp_path: Path) -> None:
    format_directories(node(tmp_path, STATIC), CLUSTER_ID, release_version="4.0.1", features={"share.version": 1})
    assert features_of(tmp_path / "a") == {
        "metadata.version": 25,
        "group.version": 1,
        "share.version": 1,
        "transaction.version": 2,
    }


def test_a_standalone_quorum_is_stored(tmp_path: Path) -> None:
    formatted = format_directories(node(tmp_path, DYNAMIC), CLUSTER_ID, standalone=True, now_ms=lambda: 1234)
    assert formatted.directories[0].purpose == "dynamic metadata voter directory"
    header, version, voters, footer = messages_in(tmp_path / "a" / FIRST_SNAPSHOT)
    assert header == SnapshotHeaderRecord(last_contained_log_timestamp=1234)
    assert version == KRaftVersionRecord(kraft_version=1)
    assert isinstance(voters, VotersRecord)
    assert footer == SnapshotFooterRecord()
    (voter,) = VoterSet.from_record(voters)
    assert voter.key == ReplicaKey(1, meta_of(tmp_path / "a").directory_id or b"")
    assert voter.endpoints == (("CONTROLLER", "localhost", 9093),)
    assert voter.supported == (0, 1)


def test_initial_controllers_get_the_given_directory_ids(tmp_path: Path) -> None:
    first, second = TWO_DIRECTORIES
    text = f"2@[::1]:9094:{second}, 1@localhost:9093:{first}"
    format_directories(node(tmp_path, DYNAMIC, "a,b"), CLUSTER_ID, initial_controllers=text)
    assert show_id(meta_of(tmp_path / "a").directory_id or b"") == first
    assert show_id(meta_of(tmp_path / "b").directory_id or b"") != first
    assert not (tmp_path / "b" / FIRST_SNAPSHOT).exists()
    (voters,) = [each for each in messages_in(tmp_path / "a" / FIRST_SNAPSHOT) if isinstance(each, VotersRecord)]
    assert [(voter.voter_id, voter.endpoints[0].host) for voter in voters.voters] == [
        (1, "localhost"),
        (2, "0:0:0:0:0:0:0:1"),
    ]


def test_a_node_that_joins_later_stores_no_voters(tmp_path: Path) -> None:
    format_directories(node(tmp_path, DYNAMIC), CLUSTER_ID, no_initial_controllers=True)
    assert not (tmp_path / "a" / FIRST_SNAPSHOT).exists()


@pytest.mark.parametrize(
    ("given", "arguments", "words"),
    [
        (DYNAMIC, {}, "give one of --standalone, --initial-controllers or --no-initial-controllers"),
        (STATIC, {"standalone": True}, "controller.quorum.voters is set"),
        (DYNAMIC, {"standalone": True, "no_initial_controllers": True}, "exclude each other"),
        (DYNAMIC, {"initial_controllers": "1@a:1"}, "'1@a:1' does not look like"),
        (DYNAMIC, {"initial_controllers": "1@a:99999:" + TWO_DIRECTORIES[0]}, "does not look like"),
        (DYNAMIC, {"initial_controllers": " , "}, "no initial controllers|does not look like"),
        (DYNAMIC, {"initial_controllers": f"1@a:1:{TWO_DIRECTORIES[0]},1@b:1:{TWO_DIRECTORIES[1]}"}, "more than once"),
        (STATIC, {"release_version": "2.8"}, "unknown release version '2.8'; there are 3.3-IV3, "),
        (STATIC, {"release_version": "4.0", "features": {"metadata.version": 25}}, "give one of them"),
        (STATIC, {"features": {"metadata.version": 31}}, "4.4-IV0 is not yet stable"),
        (STATIC, {"features": {"metadata.version": 6}}, "no metadata.version 6; there are 7 to 31"),
        (STATIC, {"features": {"group.version": 2}}, "group.version has no level 2; there are 0 to 1"),
        (STATIC, {"features": {"colour": 2}}, "unsupported feature colour; supported are eligible"),
        (
            STATIC,
            {"features": {"kraft.version": 1}},
            "kraft.version cannot be 1, because controller.quorum.voters is set",
        ),
        (
            STATIC,
            {"features": {"eligible.leader.replicas.version": 1}, "release_version": "3.9"},
            "it needs metadata.version 4.0-IV1",
        ),
        (STATIC, {"scram": ["SCRAM-SHA-256=[name=a,password=b]"], "release_version": "3.4"}, "3.5-IV2 or later"),
        (STATIC, {"scram": ["SCRAM-SHA-256=name"]}, "square brackets"),
    ],
)
def test_invalid_arguments_leave_nothing_behind(
    tmp_path: Path, given: Mapping[str, str], arguments: Mapping[str, object], words: str
) -> None:
    with pytest.raises(FormattingRefused, match=words):
        format_directories(node(tmp_path, given), CLUSTER_ID, **arguments)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_formatted_directory_is_not_changed(tmp_path: Path) -> None:
    format_directories(node(tmp_path, STATIC), CLUSTER_ID)
    before = meta_of(tmp_path / "a")
    both = node(tmp_path, STATIC, "a,b")
    with pytest.raises(FormattingRefused, match="/a is already formatted; --ignore-formatted"):
        format_directories(both, CLUSTER_ID)
    assert not (tmp_path / "b").exists()
    formatted = format_directories(both, CLUSTER_ID, ignore_formatted=True)
    assert [path for path, _ in formatted.directories] == [f"{tmp_path}/b"]
    assert meta_of(tmp_path / "a") == before
    assert format_directories(both, CLUSTER_ID, ignore_formatted=True).directories == ()


def test_the_directory_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    format_directories(node(tmp_path, STATIC), CLUSTER_ID)
    both = node(tmp_path, STATIC, "a,b")
    with pytest.raises(
        FormattingRefused, match=f"/a/meta.properties belongs to cluster {CLUSTER_ID}, not {OTHER_CLUSTER_ID}"
    ):
        format_directories(both, OTHER_CLUSTER_ID, ignore_formatted=True)
    write_meta(DISK, f"{tmp_path}/a", NodeMeta(CLUSTER_ID, 9))
    with pytest.raises(FormattingRefused, match=r"/a/meta.properties belongs to node 9, not 1"):
        format_directories(both, CLUSTER_ID, ignore_formatted=True)
    (tmp_path / "a" / "meta.properties").write_text("version=0\n")
    with pytest.raises(FormattingRefused, match="version 0 instead of 1"):
        format_directories(both, CLUSTER_ID, ignore_formatted=True)
    assert not (tmp_path / "b").exists()


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(FormattingRefused, match="/a cannot be formatted: it is not a directory"):
        format_directories(node(tmp_path, STATIC), CLUSTER_ID)


def test_an_unreadable_directory_does_not_block_the_others() -> None:
    class BrokenDisk(SimulatedDisk):
        def open(self, path: str) -> int:
            if path.startswith("/data/b"):
                raise OSError(errno.EIO, "Input/output error", path)
            return super().open(path)

    disk = BrokenDisk(seed=1)
    formatted = format_directories(node(Path("/data"), STATIC, "a,b"), CLUSTER_ID, disk=disk)
    assert ([path for path, _ in formatted.directories], formatted.unreadable) == (["/data/a"], ("/data/b",))
    with pytest.raises(FormattingRefused, match="none of the directories can be read: /data/b"):
        format_directories(node(Path("/data"), STATIC, "b"), CLUSTER_ID, disk=disk)


def test_an_empty_cluster_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormattingRefused, match="cluster id is empty"):
        format_directories(node(tmp_path, STATIC), " ")


@pytest.mark.parametrize("calls", range(1, 32))
def test_after_power_loss_a_directory_is_complete_or_can_be_formatted(calls: int) -> None:
    settings = node(Path("/data/deep"), DYNAMIC, "a,b")
    disk = SimulatedDisk(seed=calls)
    disk.crash_after(calls)
    with suppress(PowerLoss):
        format_directories(settings, CLUSTER_ID, standalone=True, disk=disk)
    found = disk.crash()
    check_whole(found, settings)
    format_directories(settings, CLUSTER_ID, standalone=True, ignore_formatted=True, disk=found)
    after = found.crash(Survival.NONE)
    assert check_whole(after, settings) == 2


def check_whole(disk: SimulatedDisk, settings: NodeSettings) -> int:
    """Return the number of formatted directories, after checking that each is complete."""
    count = 0
    for directory in settings.directories:
        if disk.exists(directory) and read_meta(disk, directory) is not None:
            count += 1
            assert len(read_bootstrap(disk, directory)) == 6
            assert disk.exists(f"{directory}/{FIRST_SNAPSHOT}") == (directory == settings.metadata_log_dir)
    return count


def test_a_missing_bootstrap_file_means_the_newest_release(tmp_path: Path) -> None:
    assert read_bootstrap(DISK, str(tmp_path)) == [FeatureLevelRecord(name="metadata.version", feature_level=30)]


def test_a_corrupt_bootstrap_file_is_named(tmp_path: Path) -> None:
    format_directories(node(tmp_path, STATIC), CLUSTER_ID)
    path = tmp_path / "a" / "bootstrap.checkpoint"
    content = bytearray(path.read_bytes())
    content[150] ^= 1
    path.write_bytes(content)
    with pytest.raises(MalformedFile, match=re.escape(str(path))):
        read_bootstrap(DISK, f"{tmp_path}/a")


def test_credentials_accept_the_client_of_the_rfc(tmp_path: Path) -> None:
    """The conversation of RFC 7677, section 3."""
    argument = 'SCRAM-SHA-256=[name=user,password="pencil",salt=W22ZaJ0SNY7soEsUEjb6gQ==]'
    format_directories(node(tmp_path, STATIC), CLUSTER_ID, scram=[argument])
    *_, record = read_bootstrap(DISK, f"{tmp_path}/a")
    assert isinstance(record, UserScramCredentialRecord)
    assert (record.name, record.mechanism, record.iterations) == ("user", 1, 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    said = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(record.stored_key, said, "sha256")
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == record.stored_key
    server = base64.b64encode(hmac.digest(record.server_key, said, "sha256"))
    assert server == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_salts_are_random(tmp_path: Path) -> None:
    argument = "SCRAM-SHA-512=[name=user,password=pencil,iterations=4097]"
    format_directories(node(tmp_path, STATIC), CLUSTER_ID, scram=[argument, argument])
    *_, one, other = read_bootstrap(DISK, f"{tmp_path}/a")
    assert isinstance(one, UserScramCredentialRecord)
    assert isinstance(other, UserScramCredentialRecord)
    assert one.salt != other.salt
    assert (one.mechanism, one.iterations, len(one.stored_key)) == (2, 4097, 64)


@pytest.mark.parametrize(
    "argument",
    [
        "SCRAM-SHA-256",
        "SCRAM-SHA-1=[name=a,password=hush]",
        "SCRAM-SHA-256=[password=hush]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=hush,salt=?]",
        "SCRAM-SHA-256=[name=a,password=hush,iterations=x]",
        "SCRAM-SHA-256=[name=a,password=hush,iterations=16385]",
        "SCRAM-SHA-256=[name=a,password=hush,x=y]",
        "SCRAM-SHA-256=[name=a,password=hu,sh]",
        "SCRAM-SHA-256=[name=a,saltedpassword=YCE=]",
    ],
)
def test_a_bad_credential_is_refused_without_its_password(argument: str) -> None:
    with pytest.raises(InvalidCredential) as caught:
        credential_record(argument, salt=b"salt")
    assert "hu" not in str(caught.value)


def test_cluster_ids_have_22_letters_and_no_leading_dash() -> None:
    ids = {random_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", each) for each in ids)


def test_every_release_has_a_level_of_every_feature() -> None:
    for version in METADATA_VERSIONS.values():
        assert release_named(version.name, unstable=True) is version
        for feature in FEATURES.values():
            assert 0 <= feature.default_level(version.level) <= feature.latest
    assert release_named("4.0").name == "4.0-IV3"
    assert release_named("3.9.0").name == "3.9-IV0"


def test_ids_are_random_uuids_without_a_leading_dash() -> None:
    ids = {random_id(Random(seed).randbytes) for seed in range(1000)}
    assert len(ids) == 1000
    assert all(uuid.UUID(bytes=each).version == 4 for each in ids)
    assert not any(show_id(each).startswith("-") for each in ids)
