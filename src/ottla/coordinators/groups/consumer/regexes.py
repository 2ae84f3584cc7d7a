"""Subscriptions by regular expression: which topics they match is found out beside the heartbeats, a little at a time.

Expressions are RE2's, as in Kafka: none of them takes more than linear time. Even so a long one against many topics
takes its time, so that each step does a bounded amount of it, and a timer brings the next one.
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
"""No group looks for new topics more often than that."""
REFRESH_MAX_MS: Final = 10 * 60 * 1000
"""Even where no topic was created: who may see what can have changed."""
RESOLVE_REGEXES: Final = "match topics"
_ASK_AGAIN_MS: Final = 20
"""How long a look at topics waits before it asks again whether the member may describe them."""
_MEMORY_BYTES: Final = 1 << 18
"""What one compiled expression may take, some 10,000 instructions: it bounds what one character of a name can cost."""
_STEP_COST: Final = 100_000
"""Instructions of expressions times characters of names, at worst, in one step; but one name at least."""
# What Kafka's library says, where RE2 itself says it otherwise.
_WORDS: Final = {
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
    """The timer of a group's next step."""
    return TimerKey(RESOLVE_REGEXES, group_id)


@lru_cache(maxsize=256)
def compile_regex(regex: str) -> Any:
    """An expression ready to be used; raises InvalidRegularExpression if it is none."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True  # only whether it matches is asked
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        told = str(error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0])
        word = told.partition(":")[0]
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {_WORDS.get(word, word)}."
        ) from error


def needs_resolution(group: ConsumerGroup, used: Collection[str], context: Context, *, is_new: bool) -> bool:
    """Whether the expressions that are used now are to be held against all topics.

    `group` is the group before the member that brings this up was heard; `is_new` says that it brought a new one.
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
    """A look at all topics that are there now."""
    return RegexResolution(
        regexes=tuple(sorted(used)),
        names=tuple(context.image.topics),
        found={},
        version=context.image.offset,
        timestamp=context.now_ms,
        visible=context.visible,
    )


def continue_resolution(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Hold expressions against the next topics; after the last ones write down what was found."""
    group = state.groups.get(key.group)
    if not isinstance(group, ConsumerGroup) or group.regex_resolution is None:
        return Decision((), None)
    matching = _step(group.regex_resolution)
    if matching.names:
        group = replace(group, regex_resolution=matching)
        return Decision((), None, state=state.with_group(group), timers=((key, context.now_ms + 1),))
    visible = matching.visible(frozenset().union(*matching.found.values()))
    if visible is None:
        group = replace(group, regex_resolution=matching)
        return Decision((), None, state=state.with_group(group), timers=((key, context.now_ms + _ASK_AGAIN_MS),))
    group = replace(group, regex_resolution=None, new_topics_version=max(group.new_topics_version, matching.version))
    return Decision(_outcome(group, matching, frozenset(visible), context), None, state=state.with_group(group))


def _step(matching: RegexResolution) -> RegexResolution:
    patterns = [compile_regex(regex) for regex in matching.regexes]
    cost = sum(pattern.programsize + 1 for pattern in patterns)
    found = {regex: set(matching.found.get(regex, ())) for regex in matching.regexes}
    spent = taken = 0
    for name in matching.names:
        for regex, pattern in zip(matching.regexes, patterns, strict=True):
            if pattern.fullmatch(name) is not None:
                found[regex].add(name)
        taken += 1
        spent += cost * len(name)
        if spent >= _STEP_COST:
            break
    return matching._replace(
        names=matching.names[taken:], found={regex: frozenset(topics) for regex, topics in found.items()}
    )


def _outcome(
    group: ConsumerGroup, matching: RegexResolution, visible: frozenset[str], context: Context
) -> list[Stored]:
    """What was found, for those expressions that are still used; the epoch rises if that is other than before."""
    records = []
    resolved = group.resolved_regexes
    has_changed = False
    for regex in matching.regexes:
        if regex not in group.regex_counts:
            continue
        new = ResolvedRegex(matching.found.get(regex, frozenset()) & visible, matching.version, matching.timestamp)
        old = resolved.get(regex)
        has_changed |= new.topics != (old.topics if old is not None else frozenset())
        resolved = resolved.set(regex, new)
        records.append(regex_record(group.id, regex, new))
    topics = replace(group, resolved_regexes=resolved).subscribed_topics()
    metadata_hash = topics_hash(topics, context.image)
    if has_changed or metadata_hash != group.metadata_hash:
        records.append(epoch_record(group.id, group.epoch + 1, metadata_hash))
    return records
