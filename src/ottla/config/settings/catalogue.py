"""All settings by name, read from the tables on first use."""

import difflib
import functools
from collections.abc import Iterable, Mapping

from ottla.config.settings.broker_table import BROKER_ROWS
from ottla.config.settings.group_table import GROUP_ROWS
from ottla.config.settings.setting import Importance, Setting, UpdateMode
from ottla.config.settings.topic_table import TOPIC_ROWS
from ottla.config.settings.values import SettingType


@functools.cache
def broker_settings() -> Mapping[str, Setting]:
    """Return the settings of brokers and controllers."""
    return _read(BROKER_ROWS)


@functools.cache
def topic_settings() -> Mapping[str, Setting]:
    return _read(TOPIC_ROWS)


@functools.cache
def group_settings() -> Mapping[str, Setting]:
    return _read(GROUP_ROWS)


def suggest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most similar to an unknown one, or None."""
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.7)), None)


def _read(rows: str) -> Mapping[str, Setting]:
    settings = {}
    for row in rows.splitlines():
        name, kind, default, valid, importance, *update = row.split(" | ")
        settings[name] = Setting(
            name=name,
            type=SettingType(kind),
            default=None if default in ("null", "required") else "" if default == '""' else default,
            valid=valid,
            importance=Importance(importance),
            update=UpdateMode(update[0]) if update and update != ["internal"] else None,
            required=default == "required",
            internal=update == ["internal"],
        )
    return settings
