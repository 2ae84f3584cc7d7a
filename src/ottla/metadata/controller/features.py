"""UpdateFeatures: raise and lower the finalized feature levels.

Every registered broker and controller must support a level. kraft.version belongs to the quorum: a request is validated
here, and `requested_kraft_version` gives the level that the quorum then writes in its own records.
"""

from collections.abc import Iterable
from enum import IntEnum

from ottla.metadata.controller.config_validation import MIN_ISR
from ottla.metadata.controller.decision import Decision, decide_atomically
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.values import ResourceType
from ottla.protocol.errors import ApiError, InvalidUpdateVersion
from ottla.protocol.features import FEATURES, FeatureRange
from ottla.protocol.messages.records.metadata_records import ConfigRecord, FeatureLevelRecord, NoOpRecord
from ottla.protocol.messages.rpc.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.protocol.metadata_versions import (
    CONTROLLER_REGISTRATION,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
)

_DISABLED = FeatureRange(0, 0)
_NO_ERROR = "NONE"
"""Kafka's error message of a feature that was updated."""


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(
    view: ControllerView, request: UpdateFeaturesRequest, *, kraft_version: int, voters: Iterable[int]
) -> Decision[UpdateFeaturesResponse]:
    """Update all levels or none. `voters` are the controllers that must have registered their features."""
    updates = {update.feature: update for update in request.feature_updates}
    levels = {**view.image.features.levels, METADATA_VERSION: view.metadata_version, KRAFT_VERSION: kraft_version}
    proposed = levels | {name: update.max_version_level for name, update in updates.items()}
    records: list[object] = []
    try:
        for name, update in updates.items():
            records += _update(view, update, levels.get(name, 0), proposed, frozenset(voters))
    except ApiError as error:
        message = f"The update failed for all features since the following feature had an error: {error.message}"
        return Decision((), UpdateFeaturesResponse(error_code=error.code, error_message=message))
    if ELR_VERSION in updates and proposed[ELR_VERSION] > 0:
        records = [*elr_safety_records(view), *records]
    results = [UpdatableFeatureResult(feature=name, error_message=_NO_ERROR) for name in updates]
    decision = decide_atomically(records, UpdateFeaturesResponse(error_message=None, results=results))
    return decision.without_records() if request.validate_only else decision


def requested_kraft_version(request: UpdateFeaturesRequest) -> int | None:
    """Return the kraft.version that the quorum must write, if the decision has no error, or None."""
    levels = [update.max_version_level for update in request.feature_updates if update.feature == KRAFT_VERSION]
    return None if request.validate_only or not levels else levels[-1]


def elr_safety_records(view: ControllerView) -> list[ConfigRecord]:
    """Return the records that move min.insync.replicas to the cluster level, as ELR requires (KIP-966)."""
    records = []
    if MIN_ISR not in view.image.default_broker_config:
        min_isr = str(view.options.number(MIN_ISR))
        records.append(ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=MIN_ISR, value=min_isr))
    brokers = [
        resource.name
        for resource, settings in sorted(view.image.configs.items(), key=lambda item: item[0])
        if resource.type == ResourceType.BROKER and resource.name and MIN_ISR in settings
    ]
    return records + [
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name=name, name=MIN_ISR, value=None)
        for name in brokers
    ]


def _update(
    view: ControllerView, update: FeatureUpdateKey, current: int, proposed: dict[str, int], voters: frozenset[int]
) -> list[object]:
    name, level = update.feature, update.max_version_level
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if kind not in _UPGRADE_TYPES:
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    if reason := _unsupported_reason(view, name, level, voters):
        raise _invalid(name, level, reason)
    if level < current and kind == UpgradeType.UPGRADE:
        raise _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade.",
        )
    if level > current and kind != UpgradeType.UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    match name:
        case _ if name == METADATA_VERSION:
            _check_metadata_version(level, current, unsafe=kind == UpgradeType.UNSAFE_DOWNGRADE)
        case _ if name == KRAFT_VERSION:
            if level < current:
                raise _invalid(name, level, "Can't downgrade the version of this feature.")
            return [NoOpRecord()] if level > current else []
        case _:
            needed = FEATURES[name].needs_metadata.get(level, 0) if name in FEATURES else 0
            if proposed[METADATA_VERSION] < needed:
                why = f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level {needed}"
                raise _invalid(name, level, why)
    return [FeatureLevelRecord(name=name, feature_level=level)]


_UPGRADE_TYPES = frozenset(UpgradeType)


def _check_metadata_version(level: int, current: int, *, unsafe: bool) -> None:
    if level not in METADATA_VERSIONS:
        valid = f"Valid versions are from {min(METADATA_VERSIONS)} to {max(METADATA_VERSIONS)}."
        raise InvalidUpdateVersion(f"Invalid metadata.version {level}. {valid}")
    if level >= current:
        return
    if any(METADATA_VERSIONS[version].changes_records for version in range(level + 1, current + 1)):
        why = (
            "Unsafe metadata downgrade is not supported in this version."
            if unsafe
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise InvalidUpdateVersion(f"Unsupported metadata.version downgrade from {current} to {level}. {why}")


def _unsupported_reason(view: ControllerView, name: str, level: int, voters: frozenset[int]) -> str | None:
    image, own_id = view.image, view.options.node_id
    local = view.options.supported.get(name, _DISABLED)
    if reason := _reason(level, f"Local controller {own_id}", local):
        return reason
    for broker_id, broker in sorted(image.brokers.items()):
        if reason := _reason(level, f"Broker {broker_id}", broker.features.get(name, _DISABLED)):
            return reason
    if view.metadata_version < CONTROLLER_REGISTRATION:
        return None
    for controller_id, controller in sorted(image.controllers.items()):
        supported = controller.features.get(name, _DISABLED)
        if controller_id != own_id and (reason := _reason(level, f"Controller {controller_id}", supported)):
            return reason
    for voter in sorted(voters):
        if voter != own_id and voter not in image.controllers:
            return f"controller {voter} has not registered, and may not support this feature"
    return None


def _reason(level: int, node: str, supported: FeatureRange) -> str | None:
    if supported.min <= level <= supported.max:
        return None
    if supported == _DISABLED:
        return f"{node} does not support this feature."
    return f"{node} only supports versions {supported.min}-{supported.max}"


def _invalid(name: str, level: int, why: str) -> InvalidUpdateVersion:
    return InvalidUpdateVersion(f"Invalid update version {level} for feature {name}. {why}")
