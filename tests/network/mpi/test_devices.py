"""Processes with a device each: what they give is what one process gives, on that device and with NumPy's arrays."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from device_cases import DEVICES, HAS_CUDA, torch
from error_messages import check_message
from mpi_tasks import needs_mpi, start

from gradslide.network.mpi import devices

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
ROUNDING = {"points": 1e-10, "mean": 1e-10, "records": 1e-8, "certificate": 1e-8}
# R, which SPDS estimates first, has other last digits on a device: 3e-8 of it, also in one process.
LOOSE = {
    ("PDS in single precision", "device"): 1e-4,
    ("PDS in single precision", "NumPy"): 1e-4,
    ("SPDS", "NumPy"): 1e-6,
}


# ---- runs


@pytest.fixture(scope="module", params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(
    scope="module", params=[(2, "0"), (3, "0"), (3, "1")], ids=lambda param: f"{param[0]} ranks, {param[1]}"
)
def found(request, device, tmp_path_factory):
    """What each process found: rows pass through the host ("0"), or MPI is given tensors ("1")."""
    ranks, is_aware = request.param
    if is_aware == "1" and device == "cuda":
        pytest.skip("MPI need not be CUDA-aware")
    path = tmp_path_factory.mktemp("devices") / "found.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(devices.CUDA_AWARE, is_aware)
        done = start(ranks, ["mpi_devices.py", device, str(path)], capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    each = json.loads(path.read_text())
    assert len(each) == ranks
    assert all(one["cuda_aware"] == (is_aware == "1") for one in each)
    return each


@needs_mpi
def test_runs_give_what_one_process_gives_after_every_outer_iteration(found):
    for one in found:
        for name, run in one["runs"].items():
            assert run["iterations"] > 5, name
            assert run["arrays of NumPy's"], name
            for place in ("device", "NumPy"):
                assert run[f"{place}: same end"], (name, place)
                for what, rounding in ROUNDING.items():
                    most = max(rounding, LOOSE.get((name, place), 0.0))
                    assert run.get(f"{place}: {what}", 0.0) <= most, (name, place, what)
        assert one["runs"]["gap"]["status"] == "CONVERGED"
        assert one["runs"]["kkt"]["status"] == "STATIONARY"
        assert "device: certificate" in one["runs"]["gap"]


@needs_mpi
def test_exchanges_are_those_of_one_process(found):
    for one in found:
        assert np.max(list(one["exchanges"].values())) <= 1e-14


@needs_mpi
def test_rows_are_staged_once_in_each_exchange_or_never(found):
    for one in found:
        for name, run in one["runs"].items():
            copies, size = run["staged"]
            if one["cuda_aware"]:
                assert (copies, size) == (0, 0), name
            else:
                # Observations exchange rows, too; exact sums do not.
                rounds = run["rounds"] if name not in ("Newton", "LBFGS") else run["iterations"]
                assert copies >= rounds, name
                assert size > 0, name
    everybody = {run["sends all"] for one in found for run in [one["runs"]["PDS to everybody"]]}
    assert everybody == {len(found) > 2 and not found[0]["cuda_aware"]}


@needs_mpi
def test_between_records_nothing_else_leaves_the_device(found):
    assert [one["reads"] for one in found] == [0] * len(found)


@needs_mpi
def test_checkpoints_go_on_on_the_device_and_on_the_host(found):
    assert max(apart for one in found for apart in one["checkpoints"].values()) <= 1e-10


@needs_mpi
def test_runs_start_from_arrays_of_either_kind_and_from_solutions(found):
    assert max(apart for one in found for apart in one["starts"].values()) <= 1e-10


@needs_mpi
def test_devices_that_are_not_there_are_refused_in_all_processes(found):
    for rank, one in enumerate(found):
        said = one["refusals"]
        assert "device must be one that PyTorch finds" in said["nowhere"]
        assert ("PyTorch finds" if rank == 1 else "every process needs its device") in said["somewhere"]
        assert "cuda_aware needs a device" in said["aware of nothing"]
        assert "kind of loss and device" in said["mixed"]


# ---- which device


@needs_torch
def test_processes_of_a_host_share_its_devices_in_turn(monkeypatch):
    monkeypatch.setattr(devices, "checked_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert [devices.own_device("cuda", rank).index for rank in range(5)] == [0, 1, 2, 0, 1]
    assert devices.own_device("cuda:2", 0) == torch.device("cuda", 2)
    assert devices.own_device(torch.device("cuda"), 4) == torch.device("cuda", 1)
    assert devices.own_device("cpu", 4) == torch.device("cpu")


# ---- whether MPI takes its memory


def library(version="Open MPI v5.0.6", path="nowhere.so"):
    return SimpleNamespace(__file__=path, Get_library_version=lambda: version)


@pytest.fixture
def gpu(monkeypatch):
    if torch is None:
        pytest.skip("PyTorch is not installed")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    return torch.device("cuda", 0)


@pytest.mark.parametrize("answer", [0, 1])
def test_mpi_is_asked_whether_it_is_cuda_aware(answer, gpu, monkeypatch):
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda path: SimpleNamespace(MPIX_Query_cuda_support=lambda: answer))
    assert devices.is_cuda_aware(library(), gpu, None, {}) == bool(answer)
    assert not devices.is_cuda_aware(library(), torch.device("cpu"), None, {})
    monkeypatch.setattr(torch.version, "cuda", None)
    assert not devices.is_cuda_aware(library(), gpu, None, {}), "AMD's devices are named cuda, too"


def test_an_mpi_that_does_not_say_so_is_not_given_memory_of_devices(gpu):
    assert not devices.is_cuda_aware(library(), gpu, None, {})
    without_the_function = np._core._multiarray_umath.__file__
    assert not devices.is_cuda_aware(library(path=without_the_function), gpu, None, {})
    enabled = {"MPICH_GPU_SUPPORT_ENABLED": "1"}
    assert not devices.is_cuda_aware(library("MPICH Version: 4.3"), gpu, None, enabled), "only Cray's knows it"
    assert devices.is_cuda_aware(library("MPI VERSION : CRAY MPICH version 8.1"), gpu, None, enabled)
    assert not devices.is_cuda_aware(library("MPI VERSION : CRAY MPICH version 8.1"), gpu, None, {})


@needs_torch
@pytest.mark.skipif(HAS_CUDA, reason="its answer depends on how it was built")
def test_the_mpi_here_is_asked_and_says_no(gpu):
    mpi4py = pytest.importorskip("mpi4py.MPI", reason="needs gradslide[mpi]")
    assert not devices.is_cuda_aware(mpi4py, gpu, None, {})


def test_the_program_and_then_the_environment_have_the_last_word(gpu):
    for asked, said, expected in (
        (True, "0", True),
        (False, "1", False),
        (None, "1", True),
        (None, "0", False),
        (True, "", True),
    ):
        assert devices.is_cuda_aware(library(), gpu, asked, {devices.CUDA_AWARE: said}) is expected
    check_message(
        lambda: devices.is_cuda_aware(library(), gpu, None, {devices.CUDA_AWARE: "yes"}),
        ["GRADSLIDE_CUDA_AWARE must be 0 or 1", "'yes'"],
    )
