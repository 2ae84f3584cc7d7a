"""Lock files of processes. The system releases a lock when its process ends, for whatever reason."""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path


class LockHeld(Exception):
    """Another process holds the lock."""


def is_held(path: Path) -> bool:
    """Whether a running process holds the lock."""
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[int]:
    """Hold the lock, or raise LockHeld. A process that inherits the descriptor holds the lock until it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockHeld(str(path)) from error
        yield descriptor
    finally:
        os.close(descriptor)


def stop_holder(path: Path, pid: int, how: signal.Signals, patience_s: float) -> bool:
    """Send a signal to the process that holds the lock; return whether it ended in time."""
    if not is_held(path):
        return True
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # a child of this process remains a zombie until it is waited for
        if not is_held(path):
            return True
        time.sleep(0.05)
    return False
