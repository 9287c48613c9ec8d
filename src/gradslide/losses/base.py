"""What every loss offers to the methods."""

import abc
from collections.abc import Hashable, Sequence
from typing import Any

import array_api_compat as compat
import numpy as np

from gradslide._support.arrays import as_dtype, is_numpy
from gradslide._support.deprecation import rename_hooks
from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.types import Array
from gradslide.losses.devices import moved, torch_home


class Loss(abc.ABC):
    """The convex, smooth losses ft_i of m agents; row i of x, of shape (m, d), belongs to agent i.

    m: number of agents. d: dimension of one agent's x_i. dtype: float32 or float64, in which it computes.
    has_value: whether the value is known; a live stream may have gradients only. device: where the data lives, and x
    must; None for NumPy.
    """

    has_value = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        rename_hooks(cls, {"_smoothness": "compute_smoothness", "_take": "take_agents", "_settings": "settings"})

    def __init__(self, m: int, d: int, dtype: Any, home: Array | None = None) -> None:
        """home: any array of the library and on the device where the data is; None for NumPy."""
        self.m = m
        self.d = d
        self.dtype = np.dtype(dtype)
        self._home = home
        self._constants: dict[int, Array] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(m={self.m}, d={self.d}, {self.dtype})"

    @property
    def device(self) -> Any:
        """The device of PyTorch, CuPy or JAX where the data lives; None for NumPy."""
        return None if self._home is None else compat.device(self._home)

    def to(self, device: Any) -> "Loss":
        """The same loss with its data as PyTorch tensors on that device: "cpu", "cuda", "cuda:1", a torch.device."""
        other = self._moved(torch_home(device))
        other._constants = dict(self._constants)
        return other

    @abc.abstractmethod
    def value(self, x: Array) -> Array:
        """ft_i(x_i) of each agent, shape (m,)."""

    @abc.abstractmethod
    def gradient(self, x: Array) -> Array:
        """Gradient of ft_i at x_i, shape (m, d)."""

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        """Both at once, sharing one pass over the data where the loss has rows."""
        return self.value(x), self.gradient(x)

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> Array:
        """Unbiased estimate of the gradient, shape (m, d).

        batch: rows per agent, drawn uniformly with replacement. streams: one random generator per agent;
        agent i draws from its own only.
        """
        raise no_rows(self)

    @property
    def has_steps(self) -> bool:
        """Whether there are compiled `steps`."""
        return False

    def steps(self, start: Array, anchor: Array, pulls: Array, scales: Array, shares: Array) -> tuple[Array, Array]:
        """u_T and the average of the u_t, both (m, d): from u_0 = start, T times u <- (anchor + pull_t u -
        gradient(u))/scale_t, of which the average so far then takes its share_t.

        anchor: (m, d). pulls, scales, shares: (T,).
        """
        raise NotImplementedError

    @property
    def rows_per_agent(self) -> Array | None:
        """Number of rows n_i of each agent, shape (m,); None for a loss that is no sum over rows."""
        return None

    def gradient_of_rows(self, x: Array, rows: Sequence[Array], counts: Sequence[Array] | None = None) -> Array:
        """n_i times the mean of agent i's row gradients over rows[i]; shape (m, d).

        rows: for each agent, row numbers within it. counts: how often each of them counts; once by default.
        """
        raise no_rows(self)

    def read_samples(self, agent: int, batch: Any) -> Any:
        """A batch of samples, not among the rows that this agent (of 0..m-1) holds, checked for
        `gradient_of_samples`: arrays whose leading axis counts samples."""
        raise no_rows(self)

    def gradient_of_samples(self, x: Array, batches: Sequence[Any]) -> Array:
        """The mean gradient of each agent's batch, on the scale of ft_i; shape (m, d)."""
        raise no_rows(self)

    def smoothness(self, norm: int = 2) -> Array:
        """Lipschitz constant of each agent's gradient, shape (m,).

        norm: 2 for the Euclidean norm; 1 for the l1 norm, gradients measured in the l-infinity norm.
        """
        require(norm in (1, 2), "norm must be 1 or 2", repr(norm), "use 2 for Euclidean and 1 for entropy domains")
        if norm not in self._constants:
            constants = np.asarray(self.compute_smoothness(norm), dtype=np.float64)
            require_shape(self, "compute_smoothness", constants, (self.m,))
            constants.flags.writeable = False
            self._constants[norm] = constants
        return self._constants[norm]

    def take(self, agents: Sequence[int] | Array) -> "Loss":
        """The same loss for these agents only, in this order."""
        chosen = np.asarray(agents)
        require(
            chosen.ndim == 1 and chosen.size > 0 and chosen.dtype.kind in "iu",
            "agents to take must be a sequence of one or more integers",
            repr(agents),
            "pass for example [0, 3]",
        )
        outside = chosen[(chosen < 0) | (chosen >= self.m)]
        require(
            outside.size == 0,
            f"agents to take must lie in 0..{self.m - 1}",
            outside[:3].tolist(),
            "name agents that this loss holds",
        )
        if np.array_equal(chosen, np.arange(self.m)):
            return self
        part = self.take_agents(chosen)
        part._constants.update({norm: constants[chosen] for norm, constants in self._constants.items()})
        return part

    def merge_key(self) -> Hashable | None:
        """Losses with the same key can be merged by `merged`; None: cannot be merged."""
        return None

    def merged(self, others: Sequence[Any]) -> "Loss":
        """One loss that holds the agents of this one, then those of the others (all of one merge key)."""
        raise NotImplementedError

    @abc.abstractmethod
    def compute_smoothness(self, norm: int) -> Array: ...

    @abc.abstractmethod
    def take_agents(self, agents: Array) -> "Loss": ...

    def _moved(self, home: Array) -> "Loss":
        """With all data where `home` is."""
        raise InputError("this loss cannot move to a device", type(self).__name__, "leave its data where it is")

    def _checked(self, x: Array) -> Array:
        """x in the dtype of the loss, where its data is; a NumPy array is brought there."""
        if self._home is not None:
            x = as_dtype(moved(x, self._home) if is_numpy(x) else x, self.dtype)
        elif is_numpy(x):
            x = np.asarray(x, dtype=self.dtype)
        else:
            raise InputError("x must be NumPy's, as the data of the loss is", kind_of(x), "move it: loss.to(device)")
        if x.shape != (self.m, self.d):
            raise InputError(
                f"x must have shape (m, d) = ({self.m}, {self.d})",
                tuple(x.shape),
                "give one row per agent of this loss",
            )
        return x


def require_shape(loss: Loss, name: str, values: Array, shape: tuple[int, ...]) -> None:
    """Refuse what a loss of a user's own gives in another shape."""
    if np.shape(values) != shape:
        rule = f"{name} of {type(loss).__name__} must give shape {shape}"
        raise InputError(rule, np.shape(values), "give one row, or one number, for each agent")


def no_rows(loss: Loss) -> InputError:
    """The error for a loss that is no sum over rows where one is needed."""
    return InputError(
        "this way of sampling needs a loss that is a sum over rows",
        type(loss).__name__,
        "use Logistic, LeastSquares, Huber, SmoothedHinge, Softmax, Torch or Jax, or give a gradient of your own",
    )


def checked_sampling(m: int, batch: int, streams: Sequence[np.random.Generator]) -> None:
    """Refuse an empty batch, or streams that are not one per agent."""
    require(
        isinstance(batch, (int, np.integer)) and batch >= 1,
        "batch must be an integer of at least 1",
        repr(batch),
        "draw at least one row per agent",
    )
    require(
        len(streams) == m,
        f"streams must hold one random generator per agent, {m} in all",
        len(streams),
        "make them with np.random.default_rng(seed).spawn(m)",
    )
