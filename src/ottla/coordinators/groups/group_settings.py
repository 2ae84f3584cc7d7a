"""The value in force for one group of a setting that groups may override, such as `consumer.session.timeout.ms`."""

from __future__ import annotations

from ottla.coordinators.groups.context import Context
from ottla.metadata.image.values import ResourceType


def group_setting(context: Context, kind: str, group_id: str, name: str) -> int:
    """Return the group's own value, within the bounds that the broker sets, or else the broker's value.

    `kind` is the type of the group and `name` the setting without its prefix. The bounds are applied on each read,
    because the broker's may have changed after the group's value was set.
    """
    own = context.image.config(ResourceType.GROUP, group_id).get(f"{kind}.{name}")
    if own is None:
        return int(context.settings(f"group.{kind}.{name}"))
    least, most = context.settings(f"group.{kind}.min.{name}"), context.settings(f"group.{kind}.max.{name}")
    return max(int(least), min(int(own), int(most)))
