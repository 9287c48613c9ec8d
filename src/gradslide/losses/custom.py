"""Losses defined by functions."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, dtype_of, is_numpy, to_numpy
from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.types import Array, DType
from gradslide.losses.base import Loss, checked_sampling
from gradslide.losses.devices import home_of, moved
from gradslide.losses.inputs import numeric_array, working_dtype

Functions = Callable[..., Any] | Sequence[Callable[..., Any]]


class Custom(Loss):
    """Convex, smooth ft_i given by functions: one per agent, or one for all agents at once.

    Methods extrapolate, so functions must be defined, convex and smooth a little outside X, too.
    Leave out what is unknown: without `value` no objective is reported, without `gradient` only
    methods that sample can run, without `hessian` `Newton` cannot. On a device (`to`) functions
    receive and return tensors there, and there are no Hessians.

    Parameters
    ----------
    gradient : callable or list of callables, optional
        List of (d,) -> (d,), or one function (m, d) -> (m, d).
    value : callable or list of callables, optional
        List of (d,) -> float, or one function (m, d) -> (m,).
    smoothness : array_like or callable, optional
        Lipschitz constants of the gradient: a number or m numbers, used for every norm, or a
        function norm -> (m,). None if unknown.
    sample_gradient : callable or list of callables, optional
        List of (x_i, batch, rng) -> (d,), or one function (x, batch, streams) -> (m, d); unbiased.
    value_and_gradient : callable or list of callables, optional
        List of (d,) -> (float, (d,)), or one function (m, d) -> ((m,), (m, d)); instead of the two,
        or where both together are cheaper.
    hessian : callable or list of callables, optional
        List of (d,) -> (d, d), or one function (m, d) -> (m, d, d); symmetric.
    agents : int
        Number of agents m.
    dimension : int
        Dimension d.
    dtype : dtype_like
        float32 or float64.

    Notes
    -----
    `take` (needed for MPI) requires lists: a function for all agents cannot be restricted to some.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> c = np.array([[0.0], [4.0]])
    >>> loss = gs.losses.Custom(
    ...     value=lambda x: ((x - c) ** 2).sum(axis=1) / 2,
    ...     gradient=lambda x: x - c,
    ...     smoothness=1.0,
    ...     agents=2,
    ...     dimension=1,
    ... )
    >>> loss.gradient(np.zeros((2, 1))).tolist()
    [[0.0], [-4.0]]
    """

    is_user_supplied = True

    def __init__(
        self,
        *,
        gradient: Functions | None = None,
        value: Functions | None = None,
        smoothness: npt.ArrayLike | Callable[[int], npt.ArrayLike] | None = None,
        sample_gradient: Functions | None = None,
        value_and_gradient: Functions | None = None,
        hessian: Functions | None = None,
        agents: int,
        dimension: int,
        dtype: DType = np.float64,
    ) -> None:
        for name, count in (("agents", agents), ("dimension", dimension)):
            require(
                isinstance(count, (int, np.integer)) and count >= 1,
                f"{name} must be an integer of at least 1",
                repr(count),
                "give a count",
            )
        require(
            working_dtype(np.dtype(dtype)) == np.dtype(dtype),
            "dtype must be float32 or float64",
            dtype,
            "use one",
        )
        super().__init__(int(agents), int(dimension), dtype)
        self._gradient = self._evaluator("gradient", gradient, (self.m, self.d))
        self._value = self._evaluator("value", value, (self.m,))
        self._sample = self._evaluator("sample_gradient", sample_gradient, (self.m, self.d))
        self._both = self._evaluator("value_and_gradient", value_and_gradient, (self.m, 1 + self.d))
        # In double precision, whatever the gradients are.
        shape = (self.m, self.d, self.d)
        self._hessian = None if hessian is None else _Evaluator("hessian", hessian, shape, np.dtype(np.float64))
        self.has_value = value is not None or value_and_gradient is not None
        self._given = smoothness if smoothness is None or callable(smoothness) else self._per_agent(smoothness)

    def value(self, x: Array) -> Array:
        if self._value is None and self._both is not None:
            return self.value_and_gradient(x)[0]
        return _given("value", self._value)(self._checked(x))

    def gradient(self, x: Array) -> Array:
        if self._gradient is None and self._both is not None:
            return self.value_and_gradient(x)[1]
        return _given("gradient", self._gradient)(self._checked(x))

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        if self._both is None:
            return super().value_and_gradient(x)
        both = self._both(self._checked(x))
        return both[:, 0], both[:, 1:]

    @property
    def has_hessian(self) -> bool:
        return self._hessian is not None and self._home is None

    def hessian(self, x: Array) -> Array:
        hessian = _given("hessian", self._hessian)
        x = self._checked(x)
        require(is_numpy(x), "a Hessian of Custom needs data of NumPy", kind_of(x), "leave x on the host")
        found = hessian(x)
        self._require_symmetric(found)
        return found

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> Array:
        sample = _given("sample_gradient", self._sample)
        checked_sampling(self.m, batch, streams)
        return sample(self._checked(x), batch, streams)

    def compute_smoothness(self, norm: int) -> Array:
        if self._given is None:
            raise InputError("the smoothness constant must be known here", "Custom without it", "give smoothness=")
        return self._per_agent(self._given(norm)) if callable(self._given) else self._given.copy()

    def take_agents(self, agents: Array) -> "Custom":
        def smoothness(norm: int) -> Array:
            return self.smoothness(norm)[agents]

        part = Custom(
            gradient=self._gradient and self._gradient.taken(agents),
            value=self._value and self._value.taken(agents),
            smoothness=None if self._given is None else smoothness,
            sample_gradient=self._sample and self._sample.taken(agents),
            value_and_gradient=self._both and self._both.taken(agents),
            hessian=self._hessian and self._hessian.taken(agents),
            agents=len(agents),
            dimension=self.d,
            dtype=self.dtype,
        )
        part._home = self._home
        return part

    def _checked(self, x: Array) -> Array:
        """x as a checked array; there is no data here, so without `to` x may belong to any library."""
        home = home_of(x) if self._home is None else None
        return super()._checked(x) if home is None else self._moved(home)._checked(x)

    def _moved(self, home: Array) -> "Custom":
        other = copy.copy(self)
        other._home = home
        return other

    def _evaluator(self, name: str, functions: Functions | None, shape: tuple[int, ...]) -> "_Evaluator | None":
        return None if functions is None else _Evaluator(name, functions, shape, self.dtype)

    def _require_symmetric(self, hessian: Array) -> None:
        """Refuse Hessians, (m, d, d), that rounding alone does not make unsymmetric."""
        with np.errstate(invalid="ignore"):
            away = np.abs(hessian - hessian.swapaxes(1, 2))
        size = np.abs(hessian).max(axis=(1, 2), keepdims=True)
        wrong = np.argwhere(away > np.sqrt(np.finfo(self.dtype).eps) * size)
        if len(wrong):
            i, j, k = wrong[0].tolist()
            entries = f"{hessian[i, j, k]:.6g} in row {j}, column {k}, {hessian[i, k, j]:.6g} in row {k}, column {j}"
            raise InputError(f"hessian must be symmetric for agent {i}", entries, "correct that function")

    def _per_agent(self, smoothness: Any) -> Array:
        constants = numeric_array("smoothness", smoothness).astype(np.float64)
        require(
            constants.shape in ((), (self.m,)) and not (constants < 0).any(),
            f"smoothness must be a non-negative number, or {self.m} of them",
            smoothness,
            "give a Lipschitz constant of the gradient for each agent",
        )
        return np.broadcast_to(constants, self.m).copy()


class _Evaluator:
    """Calls the user's functions and checks the shapes of their results."""

    def __init__(self, name: str, functions: Functions, shape: tuple[int, ...], dtype: DType) -> None:
        self._name, self._shape, self._dtype = name, shape, dtype
        self._all_at_once = functions if callable(functions) else None
        self._each = list(functions) if isinstance(functions, (list, tuple)) else []
        require(
            self._all_at_once is not None
            or (len(self._each) == shape[0] and all(callable(function) for function in self._each)),
            f"{name} must be a function, or a list with one function per agent, {shape[0]} in all",
            functions,
            "give one for every agent",
        )

    def __call__(self, x: Array, *sampling: Any) -> Array:
        if self._all_at_once is not None:
            return self._checked(self._joined(self._all_at_once(x, *sampling), x), x, self._shape, "for all agents")
        results = []
        for i, function in enumerate(self._each):
            own = (sampling[0], sampling[1][i]) if sampling else ()
            try:
                given = function(x[i], *own)
            except Exception as error:
                error.add_note(f"raised in the {self._name} of agent {i}")
                raise
            results.append(self._checked(self._joined(given, x), x, self._shape[1:], f"for agent {i}"))
        return array_namespace(x).stack(results)

    def _joined(self, result: Any, x: Array) -> Any:
        """Put a value and a gradient into one array, the value first."""
        if self._name != "value_and_gradient":
            return result
        pair = isinstance(result, tuple | list) and len(result) == 2
        require(pair, "value_and_gradient must return a value and a gradient", type(result).__name__, "return both")
        value, gradient = (_beside(part, x) for part in result)
        fits = value.ndim == gradient.ndim - 1 and value.shape == gradient.shape[:-1]
        rule = "value_and_gradient must return a value for each gradient"
        require(fits, rule, f"shapes {tuple(value.shape)} and {tuple(gradient.shape)}", "correct that function")
        return array_namespace(x).concat([value[..., None], gradient], axis=-1)

    def taken(self, agents: Array) -> list[Callable[..., Any]]:
        """The functions of these agents."""
        require(
            self._all_at_once is None,
            f"restricting a Custom loss to some agents needs {self._name} as a list",
            "one function for all agents",
            "give one function per agent",
        )
        return [self._each[i] for i in agents]

    def _told(self, shape: tuple[int, ...]) -> str:
        """The shape as the user knows it: values and gradients are joined before they are checked."""
        if self._name != "value_and_gradient" or not shape:
            return str(shape)
        return f"{shape[:-1]} and {(*shape[:-1], shape[-1] - 1)}"

    def _checked(self, result: Any, x: Array, shape: tuple[int, ...], whose: str) -> Array:
        array = _beside(result, x)
        if array.shape != shape or dtype_of(array).kind not in "biuf":
            raise InputError(
                f"{self._name} must return real numbers of shape {self._told(shape)} {whose}",
                f"type {array.dtype} and shape {self._told(tuple(array.shape))}",
                "correct that function",
            )
        return as_dtype(array, self._dtype)


def _beside(result: Any, x: Array) -> Array:
    """The result of a function, in the library of x."""
    if is_numpy(x):
        return to_numpy(result)
    return moved(result, x) if is_numpy(result) else result


def _given(name: str, evaluator: _Evaluator | None) -> _Evaluator:
    if evaluator is None:
        raise InputError(f"this needs the {name} of the loss", "Custom without it", f"give {name}=")
    return evaluator
