"""The feature levels of a new cluster, as in Kafka 4.3.

The release version, a level of metadata.version, determines the default level of every other feature; each can be set
separately. `kraft.version` depends on how the quorum is formed, and is stored with its voters.
"""

from collections.abc import Mapping

from ottla.protocol.features import FEATURES
from ottla.protocol.metadata_versions import (
    KRAFT_VERSION,
    LATEST,
    METADATA_VERSION,
    METADATA_VERSIONS,
    OLDEST,
    MetadataVersion,
)


class UnknownFeature(Exception):
    """A release, feature or level does not exist, or needs another feature."""


def release_named(text: str, *, unstable: bool = False) -> MetadataVersion:
    """Return the metadata.version for `4.0-IV3`, or the last one of a release such as `4.0` or `4.0.1`."""
    name = ".".join(text.split(".")[:2])
    versions = [version for level, version in METADATA_VERSIONS.items() if unstable or level <= LATEST]
    for version in reversed(versions):
        if name == version.name or (name == version.release and version.level <= LATEST):
            return version
    names = ", ".join(version.name for version in versions)
    raise UnknownFeature(f"unknown release version {text!r}; there are {names}")


def release_of_level(level: int, *, unstable: bool = False) -> MetadataVersion:
    version = METADATA_VERSIONS.get(level)
    if version is None:
        raise UnknownFeature(f"no metadata.version {level}; there are {OLDEST} to {max(METADATA_VERSIONS)}")
    if level > LATEST and not unstable:
        raise UnknownFeature(f"metadata.version {version.name} is not yet stable")
    return version


def starting_levels(release: MetadataVersion, chosen: Mapping[str, int], *, kraft_version: int) -> dict[str, int]:
    """Return feature → level, metadata.version first. Raise UnknownFeature for an invalid choice."""
    for name in chosen:
        if name != METADATA_VERSION and name not in FEATURES:
            raise UnknownFeature(f"unsupported feature {name}; supported are {', '.join(FEATURES)}")
    levels = {METADATA_VERSION: release.level}
    for name, feature in FEATURES.items():
        default = kraft_version if name == KRAFT_VERSION else feature.default_level(release.level)
        level = levels[name] = chosen.get(name, default)
        if not 0 <= level <= feature.latest:
            raise UnknownFeature(f"{name} has no level {level}; there are 0 to {feature.latest}")
        needed = feature.needs_metadata.get(level, 0)
        if release.level < needed:
            raise UnknownFeature(
                f"{name} cannot be {level}: it needs metadata.version {METADATA_VERSIONS[needed].name} ({needed})"
            )
    return levels
