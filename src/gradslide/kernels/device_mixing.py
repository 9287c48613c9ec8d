"""An outer iteration of the gossip mode on a GPU, by the Triton kernels in `triton_mixing` and `triton_prox`.

Launches are asynchronous: the host never waits for the device.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from gradslide._support.types import Array, Sparse, Tensor
from gradslide.graphs.chebyshev import Coefficients
from gradslide.kernels.device import DeviceKernel, on_device_of, parts
from gradslide.kernels.device_sets import device_sets, whole_rows
from gradslide.kernels.mixing import DotsInput, MixingInput, MixingOutput, ProxInput
from gradslide.kernels.sets import Sets

# Numbers per agent that `tally` finds, and how many of them are sums, in double and in single precision.
_TALLIED, SUMS = 14, (9, 11)


class DeviceMixingKernel(DeviceKernel):
    """The counterpart of `MixingKernel`; results are the same to rounding.

    Parameters
    ----------
    N : Sparse
        The matrix that is applied in every exchange.
    D : Tensor
        The weights of the agents, a column, on the device.
    """

    def __init__(self, N: Sparse, D: Tensor) -> None:
        import torch

        self._torch, self._D = torch, D[:, 0].contiguous()
        self._graph = tuple(
            torch.as_tensor(np.array(each), device=D.device) for each in (N.indptr, N.indices, N.data.astype("f8"))
        )
        self._graph = (*self._graph[:2], self._graph[2].to(D.dtype))
        self._buffers: Any = None

    def run(
        self, at: MixingInput, p: float, share: float, rounds: Coefficients, out: Mapping[str, Array] | None = None
    ) -> MixingOutput:
        """Run the step before the exchanges, the exchanges, and what follows, as `MixingKernel.run` does."""
        from gradslide.kernels import triton_mixing

        torch, (m, d) = self._torch, at.x.shape
        at = MixingInput(*(cast(Any, each).contiguous() for each in at))
        # The kernels address arrays by rows.
        given_out = {name: each for name, each in (out or {}).items() if cast(Any, each).is_contiguous()}
        found = MixingOutput(
            *(
                given_out[name] if name in given_out else torch.empty_like(at.s if name == "s" else at.x)
                for name in MixingOutput._fields
            )
        )
        if self._buffers is None:
            self._buffers = [torch.empty_like(at.x) for _ in range(5)]
        v, u, moved, step, q = self._buffers
        rows, columns = triton_mixing.BLOCK
        grid = (-(-m // rows) * -(-d // columns),)
        numbers, size = parts(p), (m, d, rows, columns)
        with on_device_of(self._D):
            triton_mixing.start[grid](at.x, at.g, at.w, self._D, v, step, q, *numbers, *parts(rounds.first), *size)
            triton_mixing.first_round[grid](v, moved, q, u, *self._graph, *size)
            # The memory of v is free from now on.
            u_next = v
            for a, b in rounds.steps:
                triton_mixing.advance[grid](u, moved, step, q, u_next, *self._graph, *parts(a), *parts(b), *size)
                u, u_next = u_next, u
            triton_mixing.finish[grid](
                u,
                q,
                *at,
                *found,
                self._D,
                *numbers,
                *parts(share),
                *parts(rounds.damping),
                *size,
            )
        return found

    def release(self) -> None:
        """Free memory that was kept for further steps."""
        self._buffers = None

    def dots(self, at: DotsInput, share: float, p: float) -> Array:
        """Return the inner products of `MixingKernel.dots`, <|w| + p D |x_bar|, |x_bar|> and |y|^2, on the device."""
        from gradslide.kernels import triton_mixing

        torch, (m, d) = self._torch, at.x.shape
        at = DotsInput(*(cast(Any, each).contiguous() for each in at))
        found = torch.empty((triton_mixing.COUNT, m), dtype=torch.float64, device=at.x.device)
        columns = min(triton_mixing.DOTS_COLUMNS, 1 << max(0, d - 1).bit_length())
        rows = triton_mixing.DOTS // columns
        size = (m, d, rows, columns)
        with on_device_of(self._D):
            triton_mixing.inner_products[(-(-m // rows),)](*at, self._D, found, *parts(share), *parts(p), *size)
        return found

    def tally(
        self,
        products: "Sequence[Array | None]",
        residuals: Sequence[Array],
        known: "tuple[Array, Array, Array | None, float, Array | None, Array | None, Array | None]",
        roundings: tuple[float, float, float],
    ) -> tuple[list[Array], Array, Array, Array]:
        """Return the fields of `sums.Tally`, as `sums.tally` does.

        Parameters
        ----------
        products, residuals, known
            As of `sums.tally`; all products are known.
        roundings : tuple of float
            The precision of gradients in single precision, what rounding does to them, and to sums.

        Returns
        -------
        sums : list of Array
            In the order of `Sums`; without the last two fields in double precision.
        conjugate, reach, conjugate_bar : Array
            One number per agent.
        """
        from gradslide.kernels import triton_mixing

        value_under, value_before, conjugate_bar, share, r_bar, r_before, y = known
        m, is_single = len(self._D), y is not None
        found = self._torch.empty((_TALLIED, m), dtype=self._torch.float64, device=self._D.device)
        # Kernels do not read what is unknown.
        optional = (value_under if each is None else each for each in (conjugate_bar, r_bar, r_before))
        with on_device_of(self._D):
            triton_mixing.tally[(-(-m // triton_mixing.AGENTS),)](
                *products,
                *residuals,
                self._D,
                *(cast(Any, each).contiguous() for each in (value_under, value_before, *optional)),
                found,
                *parts(share),
                *roundings[:2],
                *parts(roundings[2]),
                m,
                conjugate_bar is not None,
                r_bar is not None,
                is_single,
                triton_mixing.AGENTS,
            )
        *sums, conjugate, reach, bar = cast(Any, found).unbind()
        return sums[: SUMS[is_single]], conjugate, reach, bar

    def completed(self, sums: "Sequence[Array | None]", value_under: Array, value_bar: Array) -> Array:
        """Return one row of sums per agent, as `Unfinished.completed` does.

        Parameters
        ----------
        sums, value_under, value_bar
            As of `Unfinished`.

        Returns
        -------
        Array
            The fields of `Sums` that are known, one column each.
        """
        from gradslide.kernels import triton_mixing

        m, is_single = len(self._D), sums[-1] is not None
        found = self._torch.empty((SUMS[is_single], m), dtype=self._torch.float64, device=self._D.device)
        with on_device_of(self._D):
            triton_mixing.completed[(-(-m // triton_mixing.AGENTS),)](
                *(value_under if each is None else each for each in sums),
                *(cast(Any, each).contiguous() for each in (value_under, value_bar)),
                found,
                m,
                is_single,
                triton_mixing.AGENTS,
            )
        return found.T


class DeviceProxKernel(DeviceKernel):
    """The counterpart of `ProxKernel`; results are the same to rounding.

    Parameters
    ----------
    sets : Sets
        The set and its penalty, of one kind and with at most `MOST_COLUMNS` columns.
    D : Tensor
        The weights of the agents, a column, on the device.
    d : int
        The number of columns.
    """

    def __init__(self, sets: Sets, D: Tensor, d: int) -> None:
        import torch

        self._torch, self._D = torch, D[:, 0].contiguous()
        arrays, kinds, kind = device_sets(sets, D.expand(-1, d))
        *block, self._warps = whole_rows(d)
        # Euclidean prox steps do not depend on the center.
        self._arrays, self._constants = arrays[1:], (len(D), d, *block, *kinds[1:], kind)
        self._grid = (-(-len(D) // block[0]),)

    def stationarity(self, at: ProxInput, p: float, share: float) -> Array:
        """Return <Q, Q/D> of each agent, as `ProxKernel.stationarity` does.

        Parameters
        ----------
        at, p, share
            As there.

        Returns
        -------
        Array, shape (agents,)
            In double precision, on the device.
        """
        from gradslide.kernels import triton_prox

        found = self._torch.empty_like(self._D, dtype=self._torch.float64)
        with on_device_of(self._D):
            triton_prox.stationarity[self._grid](
                *(cast(Any, each).contiguous() for each in at),
                self._D,
                *self._arrays,
                found,
                *parts(share),
                *parts(p),
                *self._constants,
                num_warps=self._warps,
            )
        return found

    def step(self, x_bar: Array, before: Array, u: Array, step: float, ratio: float) -> None:
        """Replace x_bar by its prox step, and u, as `ProxKernel.step` does.

        Parameters
        ----------
        x_bar, before, u, step, ratio
            As there; x_bar and u are contiguous.
        """
        from gradslide.kernels import triton_prox

        with on_device_of(self._D):
            triton_prox.step[self._grid](
                x_bar,
                cast(Any, before).contiguous(),
                u,
                *self._arrays,
                *parts(step),
                *parts(ratio),
                *self._constants,
                num_warps=self._warps,
            )
