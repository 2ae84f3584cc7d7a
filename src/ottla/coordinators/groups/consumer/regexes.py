"""Resolution of regular expressions in subscriptions to topics, outside of heartbeats and in small steps.

As in Kafka, expressions are RE2's, which match in linear time. A long expression and many topics still take long, so
each step does a bounded amount of work and a timer starts the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import re2

from ottla.coordinators.groups.consumer.group import ConsumerGroup, RegexResolution, ResolvedRegex
from ottla.coordinators.groups.consumer.records import epoch_record, regex_record
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.metadata_hash import topics_hash
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import TimerKey
from ottla.protocol.errors import InvalidRegularExpression
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored

logger = logging.getLogger(__name__)

REFRESH_MIN_MS: Final = 10_000
"""The minimum interval between two resolutions of a group."""
REFRESH_MAX_MS: Final = 10 * 60 * 1000
"""The maximum interval, even if no topic was created: authorization may have changed."""
RESOLVE_REGEXES: Final = "match topics"
_ASK_AGAIN_MS: Final = 20
"""How long to wait for the authorizer before asking again which topics the member may describe."""
_MEMORY_BYTES: Final = 1 << 18
"""The memory limit of a compiled expression, about 10,000 instructions. It bounds the cost of one character."""
_STEP_COST: Final = 100_000
"""The limit of one step, in instructions times characters; each step matches at least one name."""
# The messages of Kafka's RE2 library where they differ from RE2's.
_KAFKA_MESSAGES: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


def resolution_timer(group_id: str) -> TimerKey:
    """Return the key of the timer for a group's next step."""
    return TimerKey(RESOLVE_REGEXES, group_id)


@lru_cache(maxsize=256)
def compile_regex(regex: str) -> Any:
    """Compile a regular expression; raise InvalidRegularExpression if it is malformed."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True  # only full matches are tested
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        message = str(error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0])
        reason = message.partition(":")[0]
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {_KAFKA_MESSAGES.get(reason, reason)}."
        ) from error


def needs_resolution(group: ConsumerGroup, used: Collection[str], context: Context, *, is_new: bool) -> bool:
    """Whether the expressions in use must be resolved again.

    `group` is the group before the current request, and `is_new` says whether the request has a new expression.
    """
    if not used or group.regex_resolution is not None:
        return False
    last = next(iter(group.resolved_regexes.values()), None)
    if last is None:
        return True
    if context.now_ms <= last.timestamp + REFRESH_MIN_MS:
        return False
    newest = context.image.offset if group.new_topics_version < 0 else group.new_topics_version
    return (
        is_new
        or len(used) != len(group.resolved_regexes)
        or last.version < newest
        or context.now_ms > last.timestamp + REFRESH_MAX_MS
    )


def begin_resolution(used: Collection[str], context: Context) -> RegexResolution:
    """Return a resolution against all current topics."""
    return RegexResolution(
        regexes=tuple(sorted(used)),
        names=tuple(context.image.topics),
        matches={},
        version=context.image.offset,
        timestamp=context.now_ms,
        visible=context.visible,
    )


def continue_resolution(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Match the next topics; after the last ones write the matches."""
    group = state.groups.get(key.group)
    if not isinstance(group, ConsumerGroup) or group.regex_resolution is None:
        return Decision((), None)
    resolution = _match_next_names(group.regex_resolution)
    if resolution.names:
        group = replace(group, regex_resolution=resolution)
        return Decision((), None, state=state.with_group(group), timers=((key, context.now_ms + 1),))
    visible = resolution.visible(frozenset().union(*resolution.matches.values()))
    if visible is None:
        group = replace(group, regex_resolution=resolution)
        return Decision((), None, state=state.with_group(group), timers=((key, context.now_ms + _ASK_AGAIN_MS),))
    group = replace(group, regex_resolution=None, new_topics_version=max(group.new_topics_version, resolution.version))
    return Decision(
        _resolution_records(group, resolution, frozenset(visible), context), None, state=state.with_group(group)
    )


def _match_next_names(resolution: RegexResolution) -> RegexResolution:
    patterns = [compile_regex(regex) for regex in resolution.regexes]
    cost = sum(pattern.programsize + 1 for pattern in patterns)
    matches = {regex: set(resolution.matches.get(regex, ())) for regex in resolution.regexes}
    spent = matched = 0
    for name in resolution.names:
        for regex, pattern in zip(resolution.regexes, patterns, strict=True):
            if pattern.fullmatch(name) is not None:
                matches[regex].add(name)
        matched += 1
        spent += cost * len(name)
        if spent >= _STEP_COST:
            break
    return resolution._replace(
        names=resolution.names[matched:], matches={regex: frozenset(topics) for regex, topics in matches.items()}
    )


def _resolution_records(
    group: ConsumerGroup, resolution: RegexResolution, visible: frozenset[str], context: Context
) -> list[Stored]:
    """Return the records of the matches of expressions still in use; bump the epoch if matches changed."""
    records = []
    resolved = group.resolved_regexes
    has_changed = False
    for regex in resolution.regexes:
        if regex not in group.regex_counts:
            continue
        new = ResolvedRegex(
            resolution.matches.get(regex, frozenset()) & visible, resolution.version, resolution.timestamp
        )
        old = resolved.get(regex)
        has_changed |= new.topics != (old.topics if old is not None else frozenset())
        resolved = resolved.set(regex, new)
        records.append(regex_record(group.id, regex, new))
    topics = replace(group, resolved_regexes=resolved).subscribed_topics()
    metadata_hash = topics_hash(topics, context.image)
    if has_changed or metadata_hash != group.metadata_hash:
        records.append(epoch_record(group.id, group.epoch + 1, metadata_hash))
    return records
