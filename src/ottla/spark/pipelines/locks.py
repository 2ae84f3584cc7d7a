"""Files that say which process is at work: locked for as long as it lives, however it ends."""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path


class Taken(Exception):
    """Another process holds the lock."""


def is_held(path: Path) -> bool:
    """Whether a process that lives holds the lock."""
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def held(path: Path) -> Iterator[int]:
    """Hold the lock, or raise Taken. The descriptor may be passed on: the lock is then held until that process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Taken(str(path)) from error
        yield descriptor
    finally:
        os.close(descriptor)


def end_holder(path: Path, pid: int, how: signal.Signals, patience_s: float) -> bool:
    """Send a signal to the process that holds the lock; whether it was gone in time."""
    if not is_held(path):
        return True
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # a child of this process stays until somebody asks for it
        if not is_held(path):
            return True
        time.sleep(0.05)
    return False
