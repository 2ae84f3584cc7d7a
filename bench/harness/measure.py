"""What processes cost, from /proc: CPU seconds with those of their children, memory, disk; and who else was busy.

CPU is told by the kernel to the nanosecond, and to the hundredth of a second for children that have ended. Memory is
RSS (all pages that a process has at hand) and PSS (pages that several processes share are divided among them).
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
_PARENT, _UTIME, _CSTIME = 1, 11, 14  # in /proc/PID/stat, counted behind the command's closing parenthesis
_CPUCLOCK_SCHED = 2  # of the clocks that a process has, the one of all CPU that its threads have used
MEGABYTE = 1_000_000


def process_tree(pids: Iterable[int]) -> list[int]:
    """The processes and all that they have started and that still run.

    Each process is asked for its parent. A parent's threads could be asked for their children with less effort, but
    the kernel leaves some out when a thread ends meanwhile.
    """
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(process.name)):
            children.setdefault(int(fields[_PARENT]), []).append(int(process.name))
    found: list[int] = []
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, ())
    return found


class CpuUsage(NamedTuple):
    """What a process has used so far, in seconds, and the children that it has waited for."""

    parent: int
    own: float
    children: float


def cpu_usage(pids: Iterable[int]) -> dict[int, CpuUsage]:
    """What each of the processes has used, and all that they have started."""
    found = {}
    for pid in process_tree(pids):
        if fields := _stat(pid):
            user, system, *waited_for = (int(field) / _TICKS for field in fields[_UTIME : _CSTIME + 1])
            try:
                own = time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
            except OSError:  # it has just ended
                own = user + system
            found[pid] = CpuUsage(int(fields[_PARENT]), own, sum(waited_for))
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU that the processes have used so far, with their children, dead or alive."""
    return sum(each.own + each.children for each in cpu_usage(pids).values())


def spent_seconds(before: Mapping[int, CpuUsage], after: Mapping[int, CpuUsage]) -> float:
    """CPU that was used in between.

    What a child has used goes to its parent when that waits for it, and to nobody where it does not: Spark's daemon of
    workers in Python does not, and ends those that had nothing to do for a minute.
    """
    seconds = sum(each.own + each.children for each in after.values())
    seconds -= sum(each.own + each.children for each in before.values())
    gone: dict[int, float] = {}
    for pid in before.keys() - after.keys():
        gone[before[pid].parent] = gone.get(before[pid].parent, 0.0) + before[pid].own + before[pid].children
    for parent, theirs in gone.items():
        inherited = after[parent].children - before[parent].children if parent in after and parent in before else 0.0
        seconds += max(0.0, theirs - inherited)
    return seconds


def resident_bytes(pids: Iterable[int]) -> int:
    """RSS of the processes and their children."""
    return sum(int((_read(Path(f"/proc/{pid}/statm")).split() or "00")[1]) * _PAGE for pid in process_tree(pids))


def proportional_bytes(pids: Iterable[int]) -> int:
    """PSS of the processes and their children."""
    total = 0
    for pid in process_tree(pids):
        for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def disk_bytes(folder: Path) -> int:
    """What the files of a folder occupy on disk; holes in them do not count, nor do deleted topics that wait to go."""
    total = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.endswith("-delete")]
        for name in names:
            try:
                total += os.lstat(f"{path}/{name}").st_blocks * 512
            except FileNotFoundError:  # the server has removed it meanwhile
                continue
    return total


def busy_seconds() -> float:
    """CPU that the whole machine has used so far."""
    user, nice, system, _idle, _wait, irq, soft, steal, *_ = (
        Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return sum(int(field) for field in (user, nice, system, irq, soft, steal)) / _TICKS


def own_seconds() -> float:
    """CPU of this process and of the clients that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


@contextmanager
def measured(pids: list[int], figures: dict[str, float], *, every_s: float = 0.2) -> Iterator[None]:
    """Fill in what the servers and the clients have cost, once the work inside is done."""
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
    """Use memory once, as far as there is any to spare.

    A virtual machine's memory is not there before its first use. Then whoever fills fresh pages pays for that: writing
    a file can take four times the CPU, for the system that happens to be the first.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * _PAGE
    with mmap.mmap(-1, max(_PAGE, min(size, free // 2))) as memory:
        for position in range(0, len(memory), _PAGE):
            memory[position] = 1


def machine() -> dict[str, str]:
    """What the figures were measured on."""
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
    """Whether this Python runs as fast as it can."""
    script = Path(__file__).parents[2] / "scripts" / "is_optimized.py"
    return subprocess.run([sys.executable, str(script)], check=False).returncode == 0


def _stat(pid: int) -> list[str]:
    """What the kernel tells of a process, behind its command; nothing, when it has just ended."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _read(path: Path) -> str:
    """The text of a file of /proc; nothing, when its process has just ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
