"""Losses given by functions of one's own."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradslide._types import Array
from gradslide.errors import InputError, require
from gradslide.losses.base import Loss, checked_sampling
from gradslide.losses.inputs import numeric_array, working_dtype

Functions = Callable[..., Any] | Sequence[Callable[..., Any]]


class Custom(Loss):
    """Convex, smooth ft_i from functions: a list with one per agent, or one function for all agents at once.

    gradient: list of (d,) -> (d,), or (m, d) -> (m, d). value: list of (d,) -> number, or (m, d) -> (m,).
    value_and_gradient: list of (d,) -> (number, (d,)), or (m, d) -> ((m,), (m, d)), in the place of the two or where
    both together are cheaper. smoothness: Lipschitz constant(s) of the gradient: a number or m numbers, taken for
    whichever norm is asked, or a function norm -> (m,); None if unknown. sample_gradient: list of (x_i, batch, rng) ->
    (d,), or (x, batch, streams) -> (m, d); unbiased. agents, dimension: m and d. dtype: float32 or float64.
    Give what there is: without value no objective is reported, without gradient only methods that sample run.
    `take` needs lists: a function for all agents cannot be restricted to some.
    """

    def __init__(
        self,
        *,
        gradient: Functions | None = None,
        value: Functions | None = None,
        smoothness: Any = None,
        sample_gradient: Functions | None = None,
        value_and_gradient: Functions | None = None,
        agents: int,
        dimension: int,
        dtype: Any = np.float64,
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

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> Array:
        sample = _given("sample_gradient", self._sample)
        checked_sampling(self.m, batch, streams)
        return sample(self._checked(x), batch, streams)

    def _smoothness(self, norm: int) -> Array:
        if self._given is None:
            raise InputError("the smoothness constant must be known here", "Custom without it", "give smoothness=")
        return self._per_agent(self._given(norm)) if callable(self._given) else self._given.copy()

    def _take(self, agents: Array) -> "Custom":
        def smoothness(norm: int) -> Array:
            return self.smoothness(norm)[agents]

        return Custom(
            gradient=self._gradient and self._gradient.taken(agents),
            value=self._value and self._value.taken(agents),
            smoothness=None if self._given is None else smoothness,
            sample_gradient=self._sample and self._sample.taken(agents),
            value_and_gradient=self._both and self._both.taken(agents),
            agents=len(agents),
            dimension=self.d,
            dtype=self.dtype,
        )

    def _evaluator(self, name: str, functions: Functions | None, shape: tuple[int, ...]) -> "_Evaluator | None":
        return None if functions is None else _Evaluator(name, functions, shape, self.dtype)

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
    """Calls the user's functions and checks the shape of what they return."""

    def __init__(self, name: str, functions: Functions, shape: tuple[int, ...], dtype: Any) -> None:
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
            return self._checked(self._joined(self._all_at_once(x, *sampling)), self._shape, "for all agents")
        out = np.empty(self._shape, dtype=self._dtype)
        for i, function in enumerate(self._each):
            own = (sampling[0], sampling[1][i]) if sampling else ()
            out[i] = self._checked(self._joined(function(x[i], *own)), self._shape[1:], f"for agent {i}")
        return out

    def _joined(self, result: Any) -> Any:
        """A value and a gradient in one array, the value first."""
        if self._name != "value_and_gradient":
            return result
        pair = isinstance(result, tuple | list) and len(result) == 2
        require(pair, "value_and_gradient must return a value and a gradient", type(result).__name__, "return both")
        value, gradient = (np.asarray(part) for part in result)
        fits = value.ndim == gradient.ndim - 1 and value.shape == gradient.shape[:-1]
        rule = "value_and_gradient must return a value for each gradient"
        require(fits, rule, f"shapes {value.shape} and {gradient.shape}", "correct that function")
        return np.concatenate([value[..., None], gradient], axis=-1)

    def taken(self, agents: Array) -> list[Callable[..., Any]]:
        """The functions of these agents."""
        require(
            self._all_at_once is None,
            f"restricting a Custom loss to some agents needs {self._name} as a list",
            "one function for all agents",
            "give one function per agent",
        )
        return [self._each[i] for i in agents]

    def _checked(self, result: Any, shape: tuple[int, ...], whose: str) -> Array:
        array = np.asarray(result)
        if array.shape != shape or array.dtype.kind not in "biuf":
            raise InputError(
                f"{self._name} must return real numbers of shape {shape} {whose}",
                f"type {array.dtype} and shape {array.shape}",
                "correct that function",
            )
        return array.astype(self._dtype, copy=False)


def _given(name: str, evaluator: _Evaluator | None) -> _Evaluator:
    if evaluator is None:
        raise InputError(f"this needs the {name} of the loss", "Custom without it", f"give {name}=")
    return evaluator
