"""Losses: the convex, smooth parts ft_i of the objective, vectorized over the agents.

One file per loss: value, gradient, smoothness constant, sampled gradients. Helpers here arrange the
rows of data by agent. Sets and penalties belong in `domains`, counting of gradients in `oracles`,
compiled code in `kernels`.
"""

from typing import TYPE_CHECKING

from gradslide._support.lazy import lazy_names

if TYPE_CHECKING:
    from gradslide.losses.base import Loss as Loss
    from gradslide.losses.check import LossReport as LossReport
    from gradslide.losses.cox import Cox as Cox
    from gradslide.losses.custom import Custom as Custom
    from gradslide.losses.huber import Huber as Huber
    from gradslide.losses.jax_function import Jax as Jax
    from gradslide.losses.least_squares import LeastSquares as LeastSquares
    from gradslide.losses.linear import Linear as Linear
    from gradslide.losses.logistic import Logistic as Logistic
    from gradslide.losses.poisson import Poisson as Poisson
    from gradslide.losses.quadratic import Quadratic as Quadratic
    from gradslide.losses.smoothed_hinge import SmoothedHinge as SmoothedHinge
    from gradslide.losses.softmax import Softmax as Softmax
    from gradslide.losses.stacked import stack as stack
    from gradslide.losses.torch_module import Torch as Torch
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "base": "Loss",
            "check": "LossReport",
            "cox": "Cox",
            "custom": "Custom",
            "huber": "Huber",
            "jax_function": "Jax",
            "least_squares": "LeastSquares",
            "linear": "Linear",
            "logistic": "Logistic",
            "poisson": "Poisson",
            "quadratic": "Quadratic",
            "smoothed_hinge": "SmoothedHinge",
            "softmax": "Softmax",
            "stacked": "stack",
            "torch_module": "Torch",
        },
    )
