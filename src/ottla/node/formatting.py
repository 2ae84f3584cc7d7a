"""Formats the directories of a new node as `kafka-storage format` of Kafka 4.3 does: Kafka can start on them too.

A directory counts as formatted once it has `meta.properties`, which is therefore written last. Formatted directories
are never changed, so formatting cannot destroy data.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.config.node_settings import NodeSettings
from ottla.metadata.consensus.voters import VoterSet
from ottla.metadata.runtime.bootstrap import read_bootstrap, write_bootstrap, write_first_voters
from ottla.node.initial_credentials import InvalidCredential, credential_record
from ottla.node.initial_features import UnknownFeature, release_named, release_of_level, starting_levels
from ottla.node.initial_voters import InvalidVoters, make_voter, parse_initial_controllers
from ottla.protocol.messages.records.metadata_records import FeatureLevelRecord
from ottla.protocol.metadata_versions import (
    KRAFT_VERSION,
    LATEST,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SCRAM,
    MetadataVersion,
)
from ottla.storage.directories.node_files import (
    META_PROPERTIES,
    MalformedFile,
    NodeMeta,
    read_meta,
    write_meta,
)
from ottla.storage.directories.random_ids import random_id
from ottla.storage.disk import Disk, SystemDisk

__all__ = ["Formatted", "FormattingRefused", "format_directories", "read_bootstrap"]

SALT_BYTES: Final = 24
_NO_FEATURES: Final[Mapping[str, int]] = MappingProxyType({})


class FormattingRefused(Exception):
    """Formatting failed, completely or in part; the message says why and what to do."""


class FormattedDirectory(NamedTuple):
    """A newly formatted directory, and its purpose in Kafka's words."""

    path: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Formatted:
    """The result of formatting."""

    release: MetadataVersion
    directories: tuple[FormattedDirectory, ...]
    """The newly formatted directories."""
    unreadable: tuple[str, ...]
    """Directories that were skipped because they cannot be read: one failed disk does not block the others."""


def format_directories(
    settings: NodeSettings,
    cluster_id: str,
    *,
    release_version: str | None = None,
    features: Mapping[str, int] = _NO_FEATURES,
    standalone: bool = False,
    initial_controllers: str | None = None,
    no_initial_controllers: bool = False,
    ignore_formatted: bool = False,
    scram: Sequence[str] = (),
    disk: Disk | None = None,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Formatted:
    """Format a node's log directories and metadata directory. Raise FormattingRefused.

    `standalone` starts a quorum of this controller alone, `initial_controllers` one of the controllers in a list of
    `id@host:port:directory id`, and `no_initial_controllers` joins an existing one. With `controller.quorum.voters`,
    give none of them.
    """
    disk = disk or SystemDisk()
    unstable = settings.flag("unstable.feature.versions.enable")
    try:
        release = _release(release_version, features, unstable)
        voters = _first_voters(settings, standalone, initial_controllers, no_initial_controllers)
        levels = starting_levels(release, features, kraft_version=_kraft_version(settings, features))
        plan = _Plan(cluster_id, release, levels[KRAFT_VERSION], _records(release, levels, scram), voters)
    except (UnknownFeature, InvalidCredential, InvalidVoters) as error:
        raise FormattingRefused(str(error)) from None
    metas, unreadable = _survey(disk, settings, cluster_id)
    unformatted = [directory for directory, meta in metas.items() if meta is None]
    if len(unformatted) < len(metas) and not ignore_formatted:
        first = next(directory for directory, meta in metas.items() if meta is not None)
        raise FormattingRefused(
            f"{first} is already formatted; --ignore-formatted keeps such directories unchanged and formats the others"
        )
    if not metas:
        raise FormattingRefused(f"none of the directories can be read: {', '.join(unreadable)}")
    # The metadata directory comes first, as in Kafka.
    unformatted.sort(key=lambda directory: directory != settings.metadata_log_dir)
    formatted = tuple(_format(disk, directory, settings, plan, now_ms()) for directory in unformatted)
    return Formatted(release, formatted, unreadable)


class _Plan(NamedTuple):
    """What all directories of a node have in common."""

    cluster_id: str
    release: MetadataVersion
    kraft_version: int
    records: list[object]
    voters: VoterSet | None


def _format(disk: Disk, directory: str, settings: NodeSettings, plan: _Plan, now_ms: int) -> FormattedDirectory:
    node_id, voters = settings.node_id, plan.voters
    directory_id, purpose = random_id(), "data directory"
    try:
        _make_directory(disk, directory)
        write_bootstrap(disk, directory, plan.records, metadata_version=plan.release.level, now_ms=now_ms)
        if directory == settings.metadata_log_dir:
            purpose = "metadata directory"
            if voters is not None:
                write_first_voters(disk, directory, voters, kraft_version=plan.kraft_version, now_ms=now_ms)
                purpose = "dynamic metadata directory"
            if voters is not None and node_id in voters.by_id:
                # A voter is identified by its directory id, so its id is already chosen.
                directory_id, purpose = voters.by_id[node_id].key.directory, "dynamic metadata voter directory"
        write_meta(disk, directory, NodeMeta(plan.cluster_id, node_id, directory_id))
    except OSError as error:
        raise FormattingRefused(f"{directory} cannot be formatted: {error.strerror or error}") from None
    return FormattedDirectory(directory, purpose)


def _make_directory(disk: Disk, path: str) -> None:
    """Create a directory and its parents durably."""
    parents = [str(parent) for parent in PurePath(path).parents]
    existing = next((index for index, parent in enumerate(parents) if disk.exists(parent)), 0)
    disk.make_dir(path)
    for parent in reversed(parents[: existing + 1]):
        disk.sync_dir(parent)


def _release(text: str | None, features: Mapping[str, int], unstable: bool) -> MetadataVersion:
    level = features.get(METADATA_VERSION)
    if text is not None and level is not None:
        raise UnknownFeature(
            f"--release-version and --feature {METADATA_VERSION}=... set the same level: give one of them"
        )
    if text is not None:
        return release_named(text, unstable=unstable)
    if level is not None:
        return release_of_level(level, unstable=unstable)
    return METADATA_VERSIONS[max(METADATA_VERSIONS) if unstable else LATEST]


def _first_voters(
    settings: NodeSettings, standalone: bool, initial_controllers: str | None, no_initial_controllers: bool
) -> VoterSet | None:
    """Return the voters of a quorum that keeps its members in the log; None otherwise. Raise FormattingRefused."""
    listener = settings.controller_listener_names[0]
    if standalone + (initial_controllers is not None) + no_initial_controllers > 1:
        raise FormattingRefused("--standalone, --initial-controllers and --no-initial-controllers exclude each other")
    if settings.quorum_voters:
        if standalone or initial_controllers is not None:
            raise FormattingRefused(
                "controller.quorum.voters is set, which excludes --standalone and --initial-controllers: for a quorum"
                " that can change its members, set controller.quorum.bootstrap.servers instead"
            )
        return None
    if standalone:
        if not settings.is_controller:
            raise FormattingRefused("--standalone applies only to controllers, and this node is a broker")
        here = settings.advertised_controllers[0]
        return VoterSet.from_voters(
            [make_voter(settings.node_id, here.host or "localhost", here.port, random_id(), listener)]
        )
    if initial_controllers is not None:
        return parse_initial_controllers(initial_controllers, listener)
    if settings.is_controller and not no_initial_controllers:
        raise FormattingRefused(
            "controller.quorum.voters is not set on this controller: give one of --standalone, --initial-controllers"
            " or --no-initial-controllers"
        )
    return None


def _kraft_version(settings: NodeSettings, features: Mapping[str, int]) -> int:
    """Return the level that follows from how the quorum is formed. A chosen level must agree with it."""
    is_dynamic = not settings.quorum_voters
    chosen = features.get(KRAFT_VERSION)
    if chosen is not None and (chosen > 0) != is_dynamic:
        why = "is not set" if is_dynamic else "is set"
        raise UnknownFeature(f"{KRAFT_VERSION} cannot be {chosen}, because controller.quorum.voters {why}")
    return 1 if is_dynamic else 0


def _records(release: MetadataVersion, levels: Mapping[str, int], scram: Sequence[str]) -> list[object]:
    records: list[object] = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in levels.items()
        if level > 0 and name != KRAFT_VERSION
    ]
    if scram and release.level < SCRAM:
        raise UnknownFeature(f"SCRAM needs {METADATA_VERSION} {METADATA_VERSIONS[SCRAM].name} or later")
    return records + [credential_record(argument, salt=secrets.token_bytes(SALT_BYTES)) for argument in scram]


def _survey(disk: Disk, settings: NodeSettings, cluster_id: str) -> tuple[dict[str, NodeMeta | None], tuple[str, ...]]:
    """Return the meta.properties of each directory, None if it is not formatted, and the unreadable directories.

    Raise FormattingRefused if a directory belongs to another node or cluster.
    """
    if not cluster_id.strip():
        raise FormattingRefused("the cluster id is empty")
    metas: dict[str, NodeMeta | None] = {}
    unreadable = []
    for directory in settings.directories:
        try:
            meta = metas[directory] = read_meta(disk, directory)
        except MalformedFile as error:
            raise FormattingRefused(str(error)) from None
        except NotADirectoryError:
            raise FormattingRefused(f"{directory} cannot be formatted: it is not a directory") from None
        except OSError:
            unreadable.append(directory)
            continue
        path = f"{directory}/{META_PROPERTIES}"
        if meta is not None and meta.cluster_id != cluster_id:
            raise FormattingRefused(f"{path} belongs to cluster {meta.cluster_id}, not {cluster_id}")
        if meta is not None and meta.node_id != settings.node_id:
            raise FormattingRefused(f"{path} belongs to node {meta.node_id}, not {settings.node_id}")
    return metas, tuple(unreadable)
