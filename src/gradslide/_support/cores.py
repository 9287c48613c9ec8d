"""How many cores this process may use: its affinity, and the CPU quota of its container."""

import math
import os
from functools import cache
from pathlib import Path

_GROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return how many threads can run at a time: the cores of this process, at most its quota.

    A quota of 1.5 cores counts as 2: two threads get more of it than one.

    Returns
    -------
    int
        At least 1.
    """
    return max(1, math.ceil(min(len(own_cores()), _quota())))


def own_cores() -> list[int]:
    """Return the numbers of the cores that this process may run on, all if the system does not say.

    Returns
    -------
    list of int
        Ascending. A quota leaves them all, for part of the time.
    """
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


@cache
def _quota() -> float:
    """Return `cpu_quota` of this process. Kernels ask at every call: files are read once."""
    return cpu_quota(_GROUPS, _OWN)


def cpu_quota(groups: Path, own: Path) -> float:
    """Return how many cores' time the control groups of a process grant it (Linux).

    Parameters
    ----------
    groups : Path
        Where control groups are mounted: /sys/fs/cgroup.
    own : Path
        The file that names those of the process: /proc/self/cgroup.

    Returns
    -------
    float
        Infinity without a quota.
    """
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    found = [math.inf]
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Version 2 has one hierarchy and no controllers here; version 1 has one for "cpu".
        top = groups / "cpu" if controllers else groups
        # The quota of each group above holds, too. A container may see itself as the top.
        inner = top.joinpath(*(part for part in path.split("/") if part not in ("", "..")))
        found += [_granted(folder) for folder in (inner, *inner.parents) if folder.is_relative_to(top)]
    return min(found)


def _granted(group: Path) -> float:
    """Return the quota of one control group: "max" or -1 means none, and so does what cannot be read."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{each}_us").read_text().strip() for each in ("quota", "period"))
        return math.inf if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
