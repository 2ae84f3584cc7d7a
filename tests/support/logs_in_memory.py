"""Log directories on a simulated disk, whose background work runs when the test says so."""

from collections.abc import Callable
from random import Random
from typing import TypeVar

from ottla.protocol.wire.records import Record, build_batch
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.node_files import NodeMeta
from ottla.storage.disk import Disk
from ottla.storage.log.settings import LogSettings

T = TypeVar("T")
NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


class ManualBackground:
    """A background that runs its work on demand."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []

    def run(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[OSError], None]) -> None:
        def step() -> None:
            try:
                result = work()
            except OSError as error:
                failed(error)
            else:
                done(result)

        self.work.append(step)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.timers.append((delay_ms, action))

    def finish(self) -> None:
        """Do all work, and the work that this work adds."""
        while self.work:
            self.work.pop(0)()

    def pass_time(self, ms: int) -> None:
        """Call the timers that are due, and do the work that they add."""
        due = [action for delay, action in self.timers if delay <= ms]
        self.timers = [(delay - ms, action) for delay, action in self.timers if delay > ms]
        for action in due:
            action()
        self.finish()


def make_logs(
    disk: Disk,
    *paths: str,
    background: ManualBackground | None = None,
    settings: LogSettings | None = None,
    load: bool = True,
) -> Logs:
    """Return the loaded logs of some directories, which are created if they do not exist."""
    directories = []
    for number, path in enumerate(paths):
        disk.make_dir(path)
        disk.sync_dir("/")
        meta = NodeMeta("cluster", 1, directory_id=bytes(15) + bytes([number + 1]))
        directories.append(
            LogDirectory(path, meta, disk=disk, background=background, random=Random(1), on_failure=_ignore_failure)
        )
    logs = Logs(directories)
    if load:
        logs.load(lambda _: settings or LogSettings(), NOW_MS)
    return logs


def batch(*values: bytes, timestamp: int = NOW_MS, key: bytes | None = b"k") -> bytearray:
    """Return a batch as a producer sends it."""
    return build_batch([Record(number, timestamp, key, value) for number, value in enumerate(values)])


def _ignore_failure(directory: LogDirectory, error: OSError) -> None:
    """Do nothing: the directory itself records that it is offline."""
