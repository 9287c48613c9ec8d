"""Rows on devices of PyTorch: which device a process has, and how rows travel between processes.

Where MPI is CUDA-aware, it sends from the memory of devices and receives into it. Elsewhere rows are
copied to pinned memory of the host, and from there.
"""

import ctypes
import importlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from gradslide._support.arrays import checked_device
from gradslide._support.errors import require
from gradslide._support.types import Array, Device, Tensor

# Says whether MPI takes the memory of devices, where nobody said so in the program: 1 or 0.
CUDA_AWARE = "GRADSLIDE_CUDA_AWARE"


def own_device(device: Device, host_rank: int) -> Any:
    """Return the device of this process; refuse one that is not available.

    host_rank: its number among the processes of its host, which share devices in turn where "cuda"
    comes without an index.
    """
    # Decided before any device is used: a process takes memory of each one that it has used.
    if str(device) == "cuda" and (count := _cuda_devices()) > 0:
        device = f"cuda:{host_rank % count}"
    return checked_device(device)


def _cuda_devices() -> int:
    """How many there are; 0 without PyTorch."""
    try:
        return int(importlib.import_module("torch").cuda.device_count())
    except ImportError:
        return 0


def is_cuda_aware(library: Any, device: Any, asked: bool | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether MPI may be given the memory of this device.

    asked: what the program says, if it does. After it comes the environment, and then MPI itself. An
    MPI that does not know is given memory of the host.
    """
    said = environment.get(CUDA_AWARE, "")
    require(said in ("", "0", "1"), f"{CUDA_AWARE} must be 0 or 1", repr(said), "unset it, and MPI is asked")
    if asked is None and said:
        asked = said == "1"
    if asked is not None:
        # PyTorch's tensors of the CPU are like those of a GPU here, for tests.
        return asked and device.type in ("cuda", "cpu")
    # AMD's are named cuda, too; MPI has another question for those.
    is_nvidia = device.type == "cuda" and importlib.import_module("torch").version.cuda is not None
    return is_nvidia and (_says_so(library) or _is_enabled_on_cray(library, environment))


def _says_so(library: Any) -> bool:
    """Open MPI, MPICH and MVAPICH have a function for it, which mpi4py does not have."""
    try:
        query = ctypes.CDLL(library.__file__).MPIX_Query_cuda_support
    except (AttributeError, OSError):
        return False
    return bool(query() == 1)


def _is_enabled_on_cray(library: Any, environment: Mapping[str, str]) -> bool:
    """Cray's does not start with this variable unless it can do it; others do not know it."""
    is_cray = "CRAY MPICH" in library.Get_library_version().upper()
    return is_cray and environment.get("MPICH_GPU_SUPPORT_ENABLED") == "1"


@dataclass
class Staging:
    """What was copied between devices and the host for the sake of exchanges."""

    copies_to_host: int = 0
    bytes_to_host: int = 0
    copies_to_device: int = 0
    bytes_to_device: int = 0


class DeviceTraffic:
    """Rows of one shape on their way between devices, as `Traffic` is between arrays of NumPy's.

    The host waits for the device once, before rows are sent: MPI does not know what is queued there.
    That wait also ends what still reads the buffers of the exchange before. Everything else is
    queued.
    """

    def __init__(
        self,
        rows: Tensor,
        index: Array | None,
        near: Array,
        incoming: int,
        wait: Callable[[Any], None],
        make_requests: Callable[[Any, Any], list[Any]],
        staging: Staging | None,
    ) -> None:
        """rows: any of that shape. index: the rows to send, all where there is none, which takes
        staging. incoming: how many rows come. make_requests: from the buffers. staging: counts; None
        where MPI takes the memory of the device.
        """
        self._torch: Any = importlib.import_module("torch")
        self._device, self._wait, self._staging = rows.device, wait, staging
        self._is_cuda = rows.device.type == "cuda"
        width = rows.shape[1]

        def buffer(count: int, **options: Any) -> Tensor:
            found: Tensor = self._torch.empty((count, width), dtype=rows.dtype, **options)
            return found

        self._index = None if index is None else self._torch.tensor(index, device=rows.device)
        self._near = self._torch.tensor(near, device=rows.device)
        self.around = buffer(len(near) + incoming, device=rows.device)
        self._beside, self._came = self.around[: len(near)], self.around[len(near) :]
        self._packed = None if index is None else buffer(len(index), device=rows.device)
        with self._current_device():
            if staging is None:
                self._requests = make_requests(self._packed, self._came)
                return
            sent = len(rows) if index is None else len(index)
            self._sent, self._received = (buffer(count, pin_memory=self._is_cuda) for count in (sent, incoming))
            # Arrays of NumPy's in the same memory.
            self._requests = make_requests(self._sent.numpy(), self._received.numpy())

    def start(self, v: Tensor) -> None:
        packed = v if self._index is None else self._torch.index_select(v, 0, self._index, out=self._packed)
        if self._staging is not None:
            self._sent.copy_(packed, non_blocking=self._is_cuda)
            self._staging.copies_to_host += 1
            self._staging.bytes_to_host += self._sent.nbytes
        if self._is_cuda:
            self._torch.cuda.current_stream(self._device).synchronize()
        with self._current_device():
            for request in self._requests:
                request.Start()

    def fill(self, v: Tensor) -> None:
        self._torch.index_select(v, 0, self._near, out=self._beside)

    def finish(self) -> None:
        with self._current_device():
            for request in self._requests:
                self._wait(request)
        if self._staging is not None:
            self._came.copy_(self._received, non_blocking=self._is_cuda)
            self._staging.copies_to_device += 1
            self._staging.bytes_to_device += self._received.nbytes

    def free(self) -> None:
        for request in self._requests:
            request.Free()

    def _current_device(self) -> AbstractContextManager[object]:
        """What MPI and pinned memory need; the program may have chosen another one."""
        return self._torch.cuda.device(self._device) if self._is_cuda else nullcontext()
