"""The interface of losses."""

import abc
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import array_api_compat as compat
import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, is_numpy
from gradslide._support.deprecation import rename_hooks
from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array, Device, DType, Sparse
from gradslide.losses.devices import moved, torch_home

# (agents, c), of shapes (k,) and (k, d), -> the largest <c_k, x> over the set of agent agents[k], (k,); inf if there is
# none.
Support = Callable[[Array, Array], Array]


@dataclass(frozen=True, eq=False)
class Evaluation(abc.ABC):
    """Values and gradients at one point per agent, and how values change from there.

    In single precision the difference of two values that are close is mostly rounding. `change`
    computes it from the difference of the points, without cancellation.

    Attributes
    ----------
    x : ndarray, shape (m, d)
        The points.
    value : ndarray, shape (m,)
        ft_i(x_i), in double precision.
    gradient : ndarray, shape (m, d)
        The gradient of ft_i at x_i.
    """

    x: Array
    value: Array
    gradient: Array

    def rounding(self) -> Array:
        """Return how much rounding in single precision changes the value of each agent, about.

        Returns
        -------
        ndarray, shape (m,)
            0 by default, in double precision.
        """
        return array_namespace(self.value).zeros_like(self.value)

    @abc.abstractmethod
    def change(self, x: Array) -> tuple[Array, Array]:
        """Return ft_i at another point less ft_i at this one.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            The other points, one per agent.

        Returns
        -------
        change : ndarray, shape (m,)
            The change of each agent's value, in double precision.
        error : ndarray, shape (m,)
            By how much rounding in single precision may change ``change - <gradient, x - self.x>``.
        """


class Extrapolation(NamedTuple):
    """Values at x, and values and gradients at x + theta (x - x_before), one point per agent.

    Attributes
    ----------
    scores : ndarray
        The scores of x: see `Loss.scores`.
    value : ndarray, shape (m,)
        ft_i(x_i).
    value_ahead, gradient : ndarray, shapes (m,) and (m, d)
        ft_i and its gradient at the extrapolated points.
    """

    scores: Array
    value: Array
    value_ahead: Array
    gradient: Array


# Members that follow from value and gradient. A user's class that overrides these inherits none of the others from a
# built-in loss, but what `Loss` makes of the new ones.
_FOLLOWING = (
    ("value_and_gradient",),
    ("value_in_doubles",),
    ("evaluation", "has_evaluation"),
    ("hessian", "has_hessian", "derivatives", "quadratic_part"),
    ("scores", "has_scores"),
    ("smoothness_over",),
    ("steps", "has_steps"),
    ("sample_gradient",),
    ("gradient_of_rows",),
    ("gradient_of_samples",),
)


class Loss(CheckedArguments, abc.ABC):
    """The convex, smooth losses ft_1, ..., ft_m of m agents.

    Row i of x, of shape (m, d), belongs to agent i. A subclass implements `value`, `gradient`,
    `compute_smoothness` and `take_agents`. A class that overrides `value` or `gradient` of a built-in
    loss overrides Hessians and sampled gradients, too, or has none.

    Parameters
    ----------
    m : int
        Number of agents.
    d : int
        Dimension of x_i.
    dtype : dtype_like
        float32 or float64, the precision of gradients. Built-in losses over arrays compute values
        in double precision in either case.
    home : ndarray, optional
        Any array of the library and on the device of the data; None for NumPy.

    Attributes
    ----------
    m : int
        Number of agents.
    d : int
        Dimension of x_i.
    dtype : numpy.dtype
        Precision of gradients.
    has_value : bool
        Whether `value` is available; a live stream may have gradients only.
    feature_names : sequence of str or None
        The names of the columns of the features, if they were given with names.
    is_user_supplied : bool
        Whether value and gradient are a user's code, which `solve` checks against each other.
    """

    has_value = True
    feature_names: Sequence[str] | None = None
    is_user_supplied = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.__module__.startswith("gradslide."):
            cls.is_user_supplied = True
            own = vars(cls).keys()
            for name, *abilities in _FOLLOWING if own & {"value", "gradient"} else ():
                if name not in own:
                    for each in (name, *abilities):
                        setattr(cls, each, vars(Loss)[each])
        rename_hooks(cls, {"_smoothness": "compute_smoothness", "_take": "take_agents", "_settings": "settings"})

    def __init__(self, m: int, d: int, dtype: DType, home: Array | None = None) -> None:
        self.m = m
        self.d = d
        self.dtype = np.dtype(dtype)
        self._home = home
        self._constants: dict[int, Array] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(m={self.m}, d={self.d}, {self.dtype})"

    @property
    def device(self) -> Device:
        """Device of PyTorch, CuPy or JAX that holds the data.

        Returns
        -------
        device or None
            None for NumPy.
        """
        return None if self._home is None else compat.device(self._home)

    def to(self, device: Device) -> "Loss":
        """Return the same loss with its data as PyTorch tensors on a device.

        Parameters
        ----------
        device : str or torch.device
            For example "cpu", "cuda" or "cuda:1".

        Returns
        -------
        Loss
            A loss for tensors on that device.

        Raises
        ------
        InputError
            If this kind of loss cannot move.
        """
        other = self._moved(torch_home(device))
        other._constants = dict(self._constants)
        return other

    @abc.abstractmethod
    def value(self, x: Array) -> Array:
        """Return ft_i(x_i) of each agent.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray, shape (m,)
            One value per agent.
        """

    def value_in_doubles(self, x: Array) -> Array | None:
        """Return ft_i(x_i) of each agent, computed in double precision whatever the data's.

        Upper bounds of certificates need it: in single precision a value may be rounded to one
        below the optimum.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent, in double precision.

        Returns
        -------
        ndarray, shape (m,), or None
            None for data in single precision that is on a device, or that only user code sees.
        """
        return self.value(x) if self.dtype == np.float64 else None

    @abc.abstractmethod
    def gradient(self, x: Array) -> Array:
        """Return the gradient of ft_i at x_i.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray, shape (m, d)
            One gradient per agent.
        """

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        """Return value and gradient, in one pass over the data where the loss has rows.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        values : ndarray, shape (m,)
            As `value` returns them.
        gradients : ndarray, shape (m, d)
            As `gradient` returns them.
        """
        return self.value(x), self.gradient(x)

    @property
    def has_evaluation(self) -> bool:
        """Whether `evaluation` is available.

        Returns
        -------
        bool
            True for built-in losses over arrays in single precision, where differences of values
            would be rounding.
        """
        return False

    def evaluation(self, x: Array) -> Evaluation:
        """Return value and gradient, and what is needed to follow how the value changes.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        Evaluation
            It keeps a few numbers per row of the data.
        """
        raise NotImplementedError

    @property
    def has_hessian(self) -> bool:
        """Whether `hessian` is available.

        Returns
        -------
        bool
            True for built-in losses over arrays of NumPy or PyTorch, and over NumPy arrays for
            `Custom` with `hessian`, and for `Torch` and `Jax` where these know second derivatives.
        """
        return False

    def quadratic_part(self) -> list[Array | Sparse] | None:
        """Return the matrices Q_i of quadratic losses, which are not to be written to.

        ft_i(x) = x' Q_i x / 2 + a linear function.

        Returns
        -------
        list of ndarray or scipy.sparse.csr_array, shape (d, d), or None
            One per agent. None, as by default, if the ft_i are not known to be quadratic.
        """
        return None

    def hessian(self, x: Array) -> Array:
        """Return the Hessian of ft_i at x_i, in double precision.

        Where the gradient has kinks (`Huber`, `SmoothedHinge`), an element of its generalized
        Jacobian.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray, shape (m, d, d)

        Raises
        ------
        InputError
            If the loss has no Hessians: see `has_hessian`.
        """
        rule, remedy = "a Hessian needs a loss over NumPy arrays that has one", "use a method with gradients only"
        raise InputError(rule, type(self).__name__, remedy)

    def derivatives(self, x: Array) -> tuple[Array, Array, Array]:
        """Return values, gradients and Hessians, in one pass over the data if possible.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        values : ndarray, shape (m,)
            As `value` returns them.
        gradients : ndarray, shape (m, d)
            As `gradient` returns them.
        hessians : ndarray, shape (m, d, d) or (1, d, d)
            As `hessian` returns them, or their sum if all together would be very large, and on a
            device.

        Raises
        ------
        InputError
            If the loss has no Hessians: see `has_hessian`.
        """
        return *self.value_and_gradient(x), self.hessian(x)

    @property
    def has_scores(self) -> bool:
        """Whether values and gradients follow from scores that depend linearly on x.

        Returns
        -------
        bool
            True for built-in losses over features, except in single precision where scores would be
            rounded to it.
        """
        return False

    def scores(self, x: Array) -> Array:
        """Return the scores of all rows, features times x: one product with the data.

        Scores of a linear combination of points are that combination of their scores, so values and
        gradients there need no further product with x.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray
            For `value_of_scores`, `value_and_gradient_of_scores` and `extrapolation`.
        """
        raise NotImplementedError

    def value_of_scores(self, scores: Array) -> Array:
        """Return ft_i where the scores are these; no product with the data.

        Parameters
        ----------
        scores : ndarray
            As `scores` returns them, or a linear combination of such.

        Returns
        -------
        ndarray, shape (m,)
            One value per agent.
        """
        raise NotImplementedError

    def value_and_gradient_of_scores(self, scores: Array) -> tuple[Array, Array]:
        """Return ft_i and its gradient where the scores are these; one transposed product.

        Parameters
        ----------
        scores : ndarray
            As `scores` returns them, or a linear combination of such.

        Returns
        -------
        values, gradients : ndarray, shapes (m,) and (m, d)
            One of each per agent.
        """
        raise NotImplementedError

    def extrapolation(self, x: Array, before: Array | None, theta: float) -> Extrapolation:
        """Return values at x, and values and gradients at x + theta (x - x_before).

        Two products with the data, as one gradient takes; compiled code takes one pass for both.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.
        before : ndarray or None
            The scores of x_before; None if theta is 0.
        theta : float
            How far to extrapolate.

        Returns
        -------
        Extrapolation
        """
        scores = self.scores(x)
        if before is None or theta == 0:
            values, gradients = self.value_and_gradient_of_scores(scores)
            return Extrapolation(scores, values, values, gradients)
        ahead, gradients = self.value_and_gradient_of_scores(scores + theta * (scores - before))
        return Extrapolation(scores, self.value_of_scores(scores), ahead, gradients)

    def column_squares(self) -> Array | None:
        """Return the sum of squares of each column of the features, for each agent.

        Returns
        -------
        ndarray, shape (m, p), or None
            None for a loss without features.
        """
        return None

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> Array:
        """Return an unbiased estimate of the gradient.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.
        batch : int
            Rows per agent, drawn uniformly with replacement.
        streams : sequence of numpy.random.Generator
            One generator per agent; agent i draws from streams[i] only.

        Returns
        -------
        ndarray, shape (m, d)
            One estimate per agent.

        Raises
        ------
        InputError
            If the loss is not a sum over rows.
        """
        raise no_rows(self)

    @property
    def has_steps(self) -> bool:
        """Whether the compiled `steps` are available.

        Returns
        -------
        bool
            False by default.
        """
        return False

    def steps(self, start: Array, anchor: Array, pulls: Array, scales: Array, shares: Array) -> tuple[Array, Array]:
        """Perform T compiled gradient steps without communication.

        From u_0 = start: u_t = (anchor + pulls_t u_{t-1} - gradient(u_{t-1}))/scales_t, and the
        average of the u_t moves to u_t by shares_t.

        Parameters
        ----------
        start, anchor : ndarray, shape (m, d)
            First point and constant term.
        pulls, scales, shares : ndarray, shape (T,)
            Parameters of each step.

        Returns
        -------
        last, average : ndarray, shape (m, d)
            u_T and the average of the u_t.
        """
        raise NotImplementedError

    @property
    def rows_per_agent(self) -> Array | None:
        """Number of rows n_i of each agent.

        Returns
        -------
        ndarray of int, shape (m,), or None
            None for a loss that is not a sum over rows.
        """
        return None

    def gradient_of_rows(self, x: Array, rows: Sequence[Array], counts: Sequence[Array] | None = None) -> Array:
        """Return n_i times the mean gradient over some rows of each agent.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.
        rows : sequence of ndarray of int
            For each agent, row numbers within its own rows.
        counts : sequence of ndarray, optional
            How often each of them counts; once by default.

        Returns
        -------
        ndarray, shape (m, d)
            One estimate of the gradient per agent.

        Raises
        ------
        InputError
            If the loss is not a sum over rows.
        """
        raise no_rows(self)

    def read_samples(self, agent: int, batch: Any) -> Any:
        """Check a batch of new samples for `gradient_of_samples`.

        Parameters
        ----------
        agent : int
            The agent that the samples belong to, one of 0, ..., m-1.
        batch : object
            The samples as a stream yields them.

        Returns
        -------
        object
            Arrays whose leading axis counts samples.

        Raises
        ------
        InputError
            If the batch does not fit the loss, or the loss is not a sum over rows.
        """
        raise no_rows(self)

    def gradient_of_samples(self, x: Array, batches: Sequence[Any]) -> Array:
        """Return the mean gradient of each agent's batch on the scale of ft_i.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.
        batches : sequence
            For each agent, what `read_samples` returned.

        Returns
        -------
        ndarray, shape (m, d)
            One estimate of the gradient per agent.

        Raises
        ------
        InputError
            If the loss is not a sum over rows.
        """
        raise no_rows(self)

    def smoothness(self, norm: int = 2) -> Array:
        """Return the Lipschitz constant of each agent's gradient; computed once.

        Parameters
        ----------
        norm : {2, 1}
            2 for the Euclidean norm; 1 for the l1 norm, with gradients measured in the l-infinity
            norm.

        Returns
        -------
        ndarray, shape (m,)
            One constant per agent, in float64.
        """
        require(norm in (1, 2), "norm must be 1 or 2", repr(norm), "use 2 for Euclidean and 1 for entropy domains")
        if norm not in self._constants:
            constants = np.asarray(self.compute_smoothness(norm), dtype=np.float64)
            require_shape(self, "compute_smoothness", constants, (self.m,))
            constants.flags.writeable = False
            self._constants[norm] = constants
        return self._constants[norm]

    def smoothness_over(self, support: Support, norm: int = 2) -> Array:
        """Return the Lipschitz constant of each agent's gradient over a set X_i.

        Problems ask for it. By default it is that of `smoothness`, which holds everywhere; a loss
        that has none everywhere (`Poisson`) overrides it.

        Parameters
        ----------
        support : callable
            Support function of the sets: (agents, c), of shapes (k,) and (k, d), -> the largest
            <c_k, x> over the set of agent agents[k], shape (k,); inf where there is none.
        norm : {2, 1}
            As for `smoothness`.

        Returns
        -------
        ndarray, shape (m,)
            One constant, or an upper bound, per agent, in float64.

        Raises
        ------
        InputError
            If the gradient is not Lipschitz there.
        """
        return self.smoothness(norm)

    def take(self, agents: Sequence[int] | Array) -> "Loss":
        """Return the loss of some agents.

        Parameters
        ----------
        agents : sequence of int
            Which agents, in which order.

        Returns
        -------
        Loss
            The loss of these agents.

        Raises
        ------
        InputError
            If an agent does not belong to this loss.
        """
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
        """Return a key: losses with equal keys can be merged by `merged`.

        Returns
        -------
        hashable or None
            None if the loss cannot be merged.
        """
        return None

    def merged(self, others: Sequence[Any]) -> "Loss":
        """Return one loss with the agents of this one, then those of the others.

        Parameters
        ----------
        others : sequence of Loss
            Losses with the same `merge_key()`.

        Returns
        -------
        Loss
            A loss of all their agents.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def compute_smoothness(self, norm: int) -> Array:
        """Compute the Lipschitz constant of each agent's gradient. Subclasses override it.

        Parameters
        ----------
        norm : {2, 1}
            As for `smoothness`, which checks and caches the result.

        Returns
        -------
        ndarray, shape (m,)
            One constant, or an upper bound, per agent.
        """

    @abc.abstractmethod
    def take_agents(self, agents: Array) -> "Loss":
        """Return the loss of some agents. Subclasses override it.

        Parameters
        ----------
        agents : ndarray of int
            Which agents, in which order; checked by `take`.

        Returns
        -------
        Loss
            The loss of these agents.
        """

    def _moved(self, home: Array) -> "Loss":
        """The loss with all data on the device of `home`."""
        raise InputError("this loss cannot move to a device", type(self).__name__, "leave its data where it is")

    def _checked(self, x: Array) -> Array:
        """x in the dtype and on the device of the loss; NumPy arrays are moved there."""
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
    """Refuse a result of the wrong shape of a user's own loss."""
    if np.shape(values) != shape:
        rule = f"{name} of {type(loss).__name__} must give shape {shape}"
        raise InputError(rule, np.shape(values), "give one row, or one number, for each agent")


def no_rows(loss: Loss) -> InputError:
    """Return the error for a loss that is not a sum over rows where one is needed."""
    return InputError(
        "this way of sampling needs a loss that is a sum over rows",
        type(loss).__name__,
        "use Logistic or another loss over rows of data, Torch or Jax, or give a gradient of your own",
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
