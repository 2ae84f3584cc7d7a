"""`ottla random-uuid`: generate an id for a cluster or a directory."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments."""


def run(arguments: argparse.Namespace) -> None:
    from ottla.storage.directories.random_ids import random_cluster_id

    print(random_cluster_id())
