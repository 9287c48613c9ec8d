"""The inner loop of primal-dual sliding on a GPU, by the Triton kernel in `triton_step`.

Launches are asynchronous: the host never waits for the device.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gradslide._support.arrays import sparse_like
from gradslide._support.types import Array, Sparse, Tensor
from gradslide.kernels.device import DeviceKernel, on_device_of
from gradslide.kernels.device_sets import device_sets, whole_rows
from gradslide.kernels.sets import INTERVALS, Sets
from gradslide.kernels.sliding import Buffers, InnerStart, InnerSteps, KernelResult

# Iterations that are recorded as one CUDA graph. Buffers alternate and sums are updated with period two, so it is even.
_TURN = 8
# Up to this many entries a kernel takes less time than its launch: launches are recorded and replayed.
_SMALL = 1 << 21


class DeviceInnerLoopKernel(DeviceKernel):
    """The inner loop for one graph, one domain and the incidence matrix.

    Parameters
    ----------
    laplacian : Sparse
        The Laplacian of the graph.
    sets : Sets
        The domain, one that has a kernel (`device_sets.serves`).
    like : Tensor
        An array with the shape, precision and device of x.
    """

    def __init__(self, laplacian: Sparse, sets: Sets, like: Tensor) -> None:
        import torch

        def there(values: Any, dtype: Any = None) -> Any:
            return torch.tensor(values, device=like.device, dtype=dtype)

        self._torch, (self._m, self._d) = torch, like.shape
        self._graph = (there(laplacian.indptr), there(laplacian.indices), there(laplacian.data, like.dtype))
        self._matrix = sparse_like(laplacian, like.double())
        self._sets, self._kinds, self._kind = device_sets(sets, like)
        self._base = torch.zeros(1, dtype=torch.int64, device=like.device)
        self._recorded: Any = None
        self._fixed: Any = None
        self._rows: Any = None

    def run(self, at: InnerStart, steps: InnerSteps, buffers: Buffers | None = None) -> KernelResult:
        """Run all T inner iterations, as `InnerLoopKernel.run` does; nothing is overwritten."""
        with on_device_of(at.x):
            return self._run_on_device(at, steps, buffers)

    def _run_on_device(self, at: InnerStart, steps: InnerSteps, buffers: Buffers | None) -> KernelResult:
        x, x_before, _, w, y = at
        T, alpha_1 = len(steps.etas), float(steps.alphas[0])
        ahead, last, w_new, anchor, sums = self._buffers(x, w)
        self._torch.sub(x, x_before, out=ahead[0]).mul_(alpha_1).add_(x)
        last.copy_(x)
        w_new.copy_(w)
        center = self._sets[0].reshape(-1, self._d)
        self._torch.sub(x, center, out=anchor).mul_(steps.p).sub_(y)
        self._run(T, steps, ahead, last, w_new, anchor, sums)
        before = ahead[T % 2]
        s_new, s_mean = _duals(at, sums, last, before, T, alpha_1, steps.ascent)
        # w = Lap s holds for the mean, too: this product costs no exchange.
        w_mean = (self._matrix @ s_mean).to(w.dtype)
        means = (s_mean, w_mean)
        if buffers is not None:
            means = tuple(bar + buffers.share * (mean - bar) for bar, mean in zip(buffers.bars, means, strict=True))
        return KernelResult(last.clone(), before.clone(), s_new, w_new.clone(), sums[0] / T, *means)

    def _buffers(self, x: Tensor, w: Tensor) -> Any:
        """Return contiguous buffers at fixed addresses, which recorded kernels refer to."""
        if self._fixed is None:
            empty = partial(self._torch.empty_like, memory_format=self._torch.contiguous_format)
            self._fixed = [empty(x) for _ in range(2)], empty(x), empty(w), empty(x), [empty(x) for _ in range(2)]
        for each in self._fixed[-1]:
            each.zero_()
        return self._fixed

    def _run(self, T: int, steps: InnerSteps, ahead: Any, x: Tensor, w: Tensor, anchor: Tensor, sums: Any) -> None:
        table = self._table(steps, w)

        def launch(offset: int, T: int = T) -> None:
            self._launch(offset, T, table, ahead, x, w, anchor, sums)

        def launch_turn() -> None:
            # None of these is the last iteration, hence T=0.
            for offset in range(_TURN):
                launch(offset, T=0)
            self._base.add_(_TURN)

        self._base.zero_()
        turns = (T - 1) // _TURN if w.is_cuda and w.numel() <= _SMALL else 0
        done = turns * _TURN
        if turns > 0 and self._recorded is None:
            launch_turn()
            turns -= 1
            self._recorded = self._torch.cuda.CUDAGraph()
            with self._torch.cuda.graph(self._recorded):
                launch_turn()
        for _ in range(turns):
            self._recorded.replay()
        for t in range(done, T):
            launch(t - done)

    def _table(self, steps: InnerSteps, w: Tensor) -> Tensor:
        """Return parameters per iteration, at the same address while it is large enough."""
        T = len(steps.etas)
        next_alphas = np.append(steps.alphas[1:], 0.0)
        columns = (np.full(T, steps.ascent), steps.etas, steps.scales, 1 / steps.scales, next_alphas)
        rows = self._torch.as_tensor(np.stack(columns, axis=1), dtype=w.dtype)
        if self._rows is None or len(self._rows) < T:
            self._rows = self._torch.empty((2 * T, rows.shape[1]), dtype=w.dtype, device=w.device)
            self._recorded = None
        self._rows[:T].copy_(rows, non_blocking=True)
        return self._rows

    def _launch(
        self, offset: int, T: int, table: Tensor, ahead: Any, x: Tensor, w: Tensor, anchor: Tensor, sums: Any
    ) -> None:
        from gradslide.kernels import triton_step

        if self._kind != INTERVALS:
            rows, columns, warps = whole_rows(self._d)
        else:
            is_wide = self._d >= triton_step.WIDE_BLOCK[1] and self._m <= triton_step.WIDE_AGENTS
            (rows, columns), warps = triton_step.WIDE_BLOCK if is_wide else triton_step.BLOCK, 4
        blocks = -(-self._m // rows) * -(-self._d // columns)
        triton_step.inner_iteration[(blocks,)](
            ahead[offset % 2],
            ahead[(offset + 1) % 2],
            x,
            w,
            anchor,
            *sums,
            *self._graph,
            *self._sets,
            table,
            self._base,
            offset,
            T,
            self._m,
            self._d,
            rows,
            columns,
            *self._kinds,
            self._kind,
            num_warps=warps,
        )


def _duals(
    at: InnerStart, sums: Sequence[Array], last: Tensor, before: Tensor, T: int, alpha_1: float, ascent: float
) -> tuple[Array, Array]:
    """Return s and its mean from the sums of the iterates.

    s_t = s_0 + (u_1 + ... + u_t)/q with u_t = 2 x_{t-1} - x_{t-2} for t >= 2, so most terms cancel.
    """
    x: Tensor = at.x
    x = x.double()
    u_1 = x + alpha_1 * (x - at.x_before)
    earlier = sums[0] - last
    s = at.s + ascent * (u_1 + earlier + before - x)
    shares = (sums[1] - sums[0] + earlier + x) / T + (u_1 - x)
    return s, at.s + ascent * shares
