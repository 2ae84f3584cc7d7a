"""`ottla config`: show and change the settings of a topic, a group, a broker or the cluster."""

import argparse
import re
from typing import TYPE_CHECKING, Any

from ottla.cli.command import Action, add_actions, natural
from ottla.cli.connecting import add_connection, run_with_cluster
from ottla.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.config_calls import ConfigEntry, ConfigOperation, ConfigResource


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def _add_resource(parser: argparse.ArgumentParser) -> None:
    resource = parser.add_mutually_exclusive_group(required=True)
    resource.add_argument("-t", "--topic", metavar="TOPIC", help="the settings of a topic")
    resource.add_argument("--broker", metavar="ID", type=natural, help="the settings of one broker")
    resource.add_argument("--cluster", action="store_true", help="the default settings of all brokers")
    resource.add_argument("-g", "--group", metavar="GROUP", help="the settings of a consumer group")
    add_connection(parser)


def _resource(arguments: argparse.Namespace) -> "ConfigResource":
    from ottla.client.config_calls import CLUSTER_DEFAULT, ConfigResource, ResourceType

    if arguments.topic is not None:
        return ConfigResource(ResourceType.TOPIC, arguments.topic)
    if arguments.group is not None:
        return ConfigResource(ResourceType.GROUP, arguments.group)
    return CLUSTER_DEFAULT if arguments.cluster else ConfigResource(ResourceType.BROKER, str(arguments.broker))


def _add_describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these settings")
    parser.add_argument("-a", "--all", action="store_true", help="include defaults")
    parser.add_argument("--docs", action="store_true", help="describe each setting")
    _add_resource(parser)


def _describe(arguments: argparse.Namespace) -> None:
    from ottla.client.admin import Admin
    from ottla.client.config_calls import ConfigSource

    resource = _resource(arguments)

    async def work(cluster: "Cluster") -> "list[ConfigEntry]":
        return await Admin(cluster).settings(resource, names=arguments.names or None, documentation=arguments.docs)

    settings = run_with_cluster(arguments, work)
    changed = [setting for setting in settings if setting.source not in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)]
    shown = settings if arguments.all or arguments.names else changed
    if arguments.json:
        print_json([_as_json(setting, docs=arguments.docs) for setting in shown])
        return
    if not shown:
        print(f"Nothing is set for {resource}; use --all to see {counted(len(settings), 'default')}.")
        return
    rows = [(setting.name, _value(setting), setting.source.name.lower()) for setting in shown]
    print_table(("SETTING", "VALUE", "FROM"), rows)
    if arguments.docs:
        for setting in shown:
            print(f"\n{setting.name}\n  {setting.documentation or '(no description)'}")


def _value(setting: "ConfigEntry") -> str:
    if setting.is_sensitive:
        return "(hidden)"
    return "(none)" if setting.value is None else setting.value or '""'


def _as_json(setting: "ConfigEntry", *, docs: bool) -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source.name.lower(),
        "read_only": setting.is_read_only,
        "sensitive": setting.is_sensitive,
        "synonyms": [
            {"source": source.name.lower(), "name": name, "value": value} for source, name, value in setting.synonyms
        ],
        **({"documentation": setting.documentation} if docs else {}),
    }


def _change(text: str) -> "tuple[str, str, str]":
    matched = re.fullmatch(r"([\w.-]*[\w.])(=|\+=|-=)(.*)", text, re.DOTALL)
    if matched is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, NAME+=VALUE or NAME-=VALUE")
    return matched[1], matched[2], matched[3]


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("changes", metavar="NAME=VALUE", nargs="+", type=_change)
    parser.add_argument("--dry-run", action="store_true", help="only validate the change")
    _add_resource(parser)


def _set(arguments: argparse.Namespace) -> None:
    from ottla.client.config_calls import ConfigOperation

    kinds = {"=": ConfigOperation.SET, "+=": ConfigOperation.APPEND, "-=": ConfigOperation.SUBTRACT}
    _apply(arguments, [(name, kinds[how], value) for name, how, value in arguments.changes])


def _add_unset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+")
    parser.add_argument("--dry-run", action="store_true", help="only validate the change")
    _add_resource(parser)


def _unset(arguments: argparse.Namespace) -> None:
    from ottla.client.config_calls import ConfigOperation

    _apply(arguments, [(name, ConfigOperation.UNSET, None) for name in arguments.names])


def _apply(arguments: argparse.Namespace, changes: "list[tuple[str, ConfigOperation, str | None]]") -> None:
    from ottla.client.admin import Admin

    resource = _resource(arguments)

    async def work(cluster: "Cluster") -> None:
        await Admin(cluster).change_settings(resource, changes, validate_only=arguments.dry_run)

    run_with_cluster(arguments, work)
    if arguments.json:
        print_json({"changed": [name for name, _, _ in changes], "dry_run": arguments.dry_run})
    else:
        verb = "Would change" if arguments.dry_run else "Changed"
        print(f"{verb} {counted(len(changes), 'setting')} of {resource}.")


ACTIONS = (
    Action(
        "describe",
        "Show settings and where they come from.",
        _add_describe,
        _describe,
        "examples:\n  ottla config describe --topic orders --all\n  ottla config describe --broker 1 log.dirs",
    ),
    Action(
        "set",
        "Change settings; += and -= add to a list and remove from it.",
        _add_set,
        _set,
        "examples:\n"
        "  ottla config set --topic orders retention.ms=3600000\n"
        "  ottla config set --topic orders cleanup.policy+=compact\n"
        "  ottla config set --cluster log.retention.ms=86400000",
    ),
    Action(
        "unset",
        "Reset settings to their defaults.",
        _add_unset,
        _unset,
        "examples:\n  ottla config unset --topic orders retention.ms",
    ),
)
