"""`ottla serve`: run a node in the foreground.

Ctrl-C or SIGTERM stops the node cleanly; the second one stops it at once.
"""

import argparse
import gc
import logging
from typing import TYPE_CHECKING, Any

from ottla.cli.command import CommandFailed, add_overrides, overrides

if TYPE_CHECKING:
    import asyncio

    from ottla.config.node_settings import NodeSettings
    from ottla.node.node import Node


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="FILE", nargs="?", help="server.properties (default: a one-node cluster)")
    add_overrides(parser)
    parser.add_argument("--verbose", action="store_true", help="log what the node does, not only problems")


def run(arguments: argparse.Namespace) -> None:
    gc.disable()  # loading modules creates no garbage
    try:
        _run_configured(arguments)
    finally:
        gc.enable()


def _run_configured(arguments: argparse.Namespace) -> None:
    from ottla.node.logging import set_up
    from ottla.node.settings_loader import InvalidConfiguration, load_settings

    set_up(verbose=arguments.verbose)
    try:
        settings = load_settings(arguments.config, overrides(arguments))
    except (InvalidConfiguration, OSError) as error:
        raise CommandFailed(str(error)) from error
    for warning in settings.warnings:
        logging.getLogger("ottla").warning(warning)
    _serve(settings)


def _serve(settings: "NodeSettings") -> None:
    import asyncio

    from ottla.node.directories import NodeFailed
    from ottla.node.formatting import FormattingRefused
    from ottla.storage.directories.node_files import DirectoryInUse, MalformedFile

    try:
        import uvloop
    except ImportError:  # not available on every system; the standard loop is slower
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with runner:
        try:
            runner.run(_run(settings))
        except (NodeFailed, FormattingRefused, DirectoryInUse, MalformedFile, OSError) as error:
            raise CommandFailed(str(error)) from error


def _collect_rarely() -> None:
    """Collect garbage after 20,000 new objects instead of 700, and never examine the objects that exist now.

    A node creates hardly any cycles, and looking for them took a third of the time to load and change the metadata of a
    large cluster. Objects that live as long as the node would only lengthen the pauses.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


async def _run(settings: "NodeSettings") -> None:
    import asyncio
    import signal

    from ottla.node.node import Node
    from ottla.replication.runtime import Runtime

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    node = Node(settings, Runtime(loop))
    _collect_rarely()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, stopping)
    starting = asyncio.ensure_future(node.start())
    ended: list[asyncio.Future[Any]] = [asyncio.ensure_future(stopping.wait()), node.failed]
    await asyncio.wait([starting, *ended], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        gc.freeze()
        print(_ready_line(node), flush=True)
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
    if node.failed.done():
        raise node.failed.result()
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
    await node.stop()


def _stop(stopping: "asyncio.Event") -> None:
    if stopping.is_set():
        raise KeyboardInterrupt
    stopping.set()


def _ready_line(node: "Node") -> str:
    addresses = [
        f"{listener.name}://{listener.host or 'localhost'}:{listener.port or node.ports.get(listener.name, 0)}"
        for listener in node.settings.advertised or node.settings.advertised_controllers
    ]
    return f"ottla node {node.settings.node_id} is ready at {', '.join(addresses)}, cluster {node.cluster_id}"
