"""`ottla format`: format the log directories of a new node, with the flags of `kafka-storage format`.

Without `--config` it formats the directory of a one-node cluster, with a random cluster id unless `--cluster-id` is
given.
"""

import argparse
import sys

from ottla.cli.command import CommandFailed, InvalidUsage, add_configuration, overrides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configuration(parser)
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="the cluster's id, the same on all of its nodes")
    parser.add_argument(
        "-r", "--release-version", metavar="VERSION", help="the features of this Kafka release, such as 4.0"
    )
    parser.add_argument(
        "-f",
        "--feature",
        metavar="NAME=LEVEL",
        action="append",
        default=[],
        type=feature,
        dest="features",
        help="the level of one feature; may be repeated",
    )
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="skip directories that are formatted already"
    )
    parser.add_argument(
        "-S",
        "--add-scram",
        metavar="CREDENTIAL",
        action="append",
        default=[],
        help="create a user: 'SCRAM-SHA-256=[name=alice,password=secret]'; may be repeated",
    )
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument(
        "-s", "--standalone", action="store_true", help="start a quorum with this controller as its only voter"
    )
    quorum.add_argument(
        "-I",
        "--initial-controllers",
        metavar="CONTROLLERS",
        help="the first voters, as a comma-separated list of id@host:port:directory-id",
    )
    quorum.add_argument("-N", "--no-initial-controllers", action="store_true", help="join an existing quorum later")


def feature(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    try:
        return name.strip(), int(level)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=LEVEL") from None


def run(arguments: argparse.Namespace) -> None:
    from ottla.node.formatting import FormattingRefused, format_directories
    from ottla.node.settings_loader import InvalidConfiguration, load_settings
    from ottla.storage.directories.random_ids import random_cluster_id

    if arguments.cluster_id is None and arguments.config is not None:
        raise InvalidUsage(
            "--cluster-id is missing; all nodes of a cluster share one (`ottla random-uuid` generates it)"
        )
    cluster_id = arguments.cluster_id if arguments.cluster_id is not None else random_cluster_id()
    try:
        settings = load_settings(arguments.config, overrides(arguments))
        chosen = arguments.initial_controllers is not None or arguments.no_initial_controllers
        formatted = format_directories(
            settings,
            cluster_id,
            release_version=arguments.release_version,
            features=dict(arguments.features),
            standalone=arguments.standalone or (settings.is_own_quorum and settings.is_controller and not chosen),
            initial_controllers=arguments.initial_controllers,
            no_initial_controllers=arguments.no_initial_controllers,
            ignore_formatted=arguments.ignore_formatted,
            scram=arguments.add_scram,
        )
    except (InvalidConfiguration, FormattingRefused) as error:
        raise CommandFailed(str(error)) from None
    for warning in (*settings.warnings, *(f"{path} cannot be read and was skipped" for path in formatted.unreadable)):
        print(f"warning: {warning}", file=sys.stderr)
    if not formatted.directories:
        print("All of the log directories are already formatted.")
    elif arguments.cluster_id is None:
        print(f"The cluster's id is {cluster_id}.")
    for path, purpose in formatted.directories:
        print(f"Formatting {purpose} {path} with metadata.version {formatted.release.name}.")
