"""CPU, memory and disk usage of processes and their children, and the CPU of everything else, from /proc.

The kernel reports CPU to the nanosecond, and that of children that have ended to the hundredth of a second. Memory is
RSS (all resident pages) and PSS (pages that several processes share are divided among them).
"""

import mmap
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")
_PARENT, _UTIME, _CSTIME = 1, 11, 14  # in /proc/PID/stat, after the closing parenthesis of the command
_CPUCLOCK_SCHED = 2  # the clock of a process that counts the CPU of all its threads
MEGABYTE = 1_000_000


def process_tree(pids: Iterable[int]) -> list[int]:
    """Return the processes and all their running descendants.

    This reads the parent of every process. Reading the children of each thread would be cheaper, but the kernel omits
    some of them if a thread ends at the same time.
    """
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(process.name)):
            children.setdefault(int(fields[_PARENT]), []).append(int(process.name))
    tree: list[int] = []
    remaining = list(pids)
    while remaining:
        pid = remaining.pop()
        tree.append(pid)
        remaining += children.get(pid, ())
    return tree


class CpuUsage(NamedTuple):
    """CPU seconds of a process so far, and of the children that it has waited for."""

    parent: int
    own: float
    children: float


def cpu_usage(pids: Iterable[int]) -> dict[int, CpuUsage]:
    """Return the CPU usage of each process and of their descendants."""
    usage = {}
    for pid in process_tree(pids):
        if fields := _stat(pid):
            user, system, *children = (int(field) / _TICKS for field in fields[_UTIME : _CSTIME + 1])
            try:
                own = time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
            except OSError:  # the process has just ended
                own = user + system
            usage[pid] = CpuUsage(int(fields[_PARENT]), own, sum(children))
    return usage


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of the processes so far, including running and ended children."""
    return sum(usage.own + usage.children for usage in cpu_usage(pids).values())


def spent_seconds(before: Mapping[int, CpuUsage], after: Mapping[int, CpuUsage]) -> float:
    """Return the CPU seconds that were used between two measurements.

    The kernel adds the usage of a child that ends to its parent if the parent waits for it. Otherwise it is lost:
    Spark's daemon for Python workers does not wait, and ends workers that were idle for a minute.
    """
    seconds = sum(usage.own + usage.children for usage in after.values())
    seconds -= sum(usage.own + usage.children for usage in before.values())
    ended: dict[int, float] = {}
    for pid in before.keys() - after.keys():
        ended[before[pid].parent] = ended.get(before[pid].parent, 0.0) + before[pid].own + before[pid].children
    for parent, children_s in ended.items():
        inherited_s = after[parent].children - before[parent].children if parent in after and parent in before else 0.0
        seconds += max(0.0, children_s - inherited_s)
    return seconds


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the RSS of the processes and their descendants."""
    return sum(int((_read(Path(f"/proc/{pid}/statm")).split() or "00")[1]) * _PAGE for pid in process_tree(pids))


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the PSS of the processes and their descendants."""
    total = 0
    for pid in process_tree(pids):
        for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def disk_bytes(folder: Path) -> int:
    """Return the disk usage of a folder, without holes in files and without topics that are marked for deletion."""
    total = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.endswith("-delete")]
        for name in names:
            try:
                total += os.lstat(f"{path}/{name}").st_blocks * 512
            except FileNotFoundError:  # the server has just deleted it
                continue
    return total


def busy_seconds() -> float:
    """Return the CPU seconds of the whole machine so far."""
    user, nice, system, _idle, _wait, irq, soft, steal, *_ = (
        Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return sum(int(field) for field in (user, nice, system, irq, soft, steal)) / _TICKS


def own_seconds() -> float:
    """Return the CPU seconds of this process and of the clients that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


@contextmanager
def measured(pids: list[int], figures: dict[str, float], *, every_s: float = 0.2) -> Iterator[None]:
    """Fill in the usage of servers and clients while the body runs."""
    peak = [resident_bytes(pids)]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(every_s):
            peak[0] = max(peak[0], resident_bytes(pids))

    watching = threading.Thread(target=watch, daemon=True)
    wall, before, own, busy = time.perf_counter(), cpu_usage(pids), own_seconds(), busy_seconds()
    watching.start()
    try:
        yield
    finally:
        wall, server = time.perf_counter() - wall, spent_seconds(before, cpu_usage(pids))
        own, busy = own_seconds() - own, busy_seconds() - busy
        done.set()
        watching.join()
    resident = resident_bytes(pids)
    figures["wall_s"] = wall
    figures["server_cpu_s"] = server
    figures["client_cpu_s"] = own
    figures["others_cores"] = max(0.0, busy - own - server) / wall
    figures["rss_mb"] = resident / MEGABYTE
    figures["rss_peak_mb"] = max(peak[0], resident) / MEGABYTE
    figures["pss_mb"] = proportional_bytes(pids) / MEGABYTE


def touch_memory(size: int) -> None:
    """Write to this many bytes of free memory, but to half of it at most.

    A virtual machine gets memory from its host at the first use. The system that runs first would pay for that: writing
    a file to fresh pages can take four times the CPU.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * _PAGE
    with mmap.mmap(-1, max(_PAGE, min(size, free // 2))) as memory:
        for position in range(0, len(memory), _PAGE):
            memory[position] = 1


def machine() -> dict[str, str]:
    """Describe the machine."""
    model = next(
        (line.partition(":")[2].strip() for line in _read(Path("/proc/cpuinfo")).splitlines() if "model name" in line),
        platform.machine(),
    )
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE / 2**30
    return {
        "processor": model,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version() + ("" if _is_optimized() else " (built without optimizations)"),
    }


def _is_optimized() -> bool:
    """Whether this Python was built with profile-guided optimization."""
    script = Path(__file__).parents[2] / "scripts" / "is_optimized.py"
    return subprocess.run([sys.executable, str(script)], check=False).returncode == 0


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command, or none if the process has just ended."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _read(path: Path) -> str:
    """Return the text of a file in /proc, or an empty string if its process has just ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
