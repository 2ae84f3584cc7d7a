"""Metrics of the process from the operating system, under the names that Prometheus clients use."""

import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.broker.metrics.family import Family, counter, gauge

_SELF: Final = Path("/proc/self")
_STARTED_S: Final = time.time()


def process_families() -> Iterator[Family]:
    """Yield metrics of CPU, memory and files, without those that the system does not provide."""
    cpu = counter("process_cpu_seconds_total", "User and system CPU time of the process, in seconds.")
    cpu.add(time.process_time())
    yield cpu
    started = gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970.")
    started.add(_STARTED_S)
    yield started
    resident = gauge("process_resident_memory_bytes", "Resident memory of the process, in bytes.")
    resident.add(_resident_bytes())
    yield resident
    limit = gauge("process_max_fds", "Limit of open file descriptors.")
    limit.add(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield limit
    if _SELF.exists():
        files = gauge("process_open_fds", "Open file descriptors.")
        files.add(sum(1 for _ in (_SELF / "fd").iterdir()))
        yield files


def _resident_bytes() -> int:
    try:
        return int((_SELF / "statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        # Without /proc only the peak is available: in bytes on macOS, elsewhere in kilobytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
