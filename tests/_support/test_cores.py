"""Usable cores: affinity and CPU quotas, as Linux shows them in files."""

import math

import pytest

from gradslide._support import cores
from gradslide._support.cores import cpu_quota, usable_cores
from gradslide.kernels.threads import thread_count


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/\n", {}, math.inf),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2.0),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/../x\n", {"cpu.max": "300000 100000\n"}, 3.0),
        ("4:memory:/\n2:cpu,cpuacct:/d\n0::/\n", {"cpu/d/cpu.cfs_quota_us": "250000\n"}, 2.5),
        ("2:cpu:/elsewhere\n", {"cpu/cpu.cfs_quota_us": "100000\n"}, 1.0),
        ("2:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n"}, math.inf),
        ("2:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "100000\n"}, math.inf),
        ("0::/\n", {"cpu.max": "nonsense"}, math.inf),
        ("0::/\n", {"cpu.max": "some 100000"}, math.inf),
        ("0::/\n", {"cpu.max": "100000 0"}, math.inf),
    ],
)
def test_quotas_are_read_from_control_groups(own, files, expected, tmp_path):
    groups = tmp_path / "groups"
    write(tmp_path, {"own": own})
    periods = {name.replace("quota", "period"): "100000\n" for name in files if "cfs" in name}
    write(groups, files | periods)
    assert cpu_quota(groups, tmp_path / "own") == expected


def test_systems_without_control_groups_have_no_quota(tmp_path):
    assert cpu_quota(tmp_path, tmp_path / "missing") == math.inf


@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 8), (1.5, 2), (0.2, 1), (8.0, 8), (20.0, 8)])
def test_threads_keep_to_the_quota(quota, expected, monkeypatch):
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "_quota", lambda: quota)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert usable_cores() == thread_count() == expected
