"""Losses: the convex, smooth parts ft_i of the objective, vectorized over the agents.

One file per loss: value, gradient, smoothness constant, sampled gradients. Helpers here arrange the
rows of data by agent. Sets and penalties belong in `domains`, counting of gradients in `oracles`,
compiled code in `kernels`.
"""

from gradslide.losses.base import Loss
from gradslide.losses.check import LossReport
from gradslide.losses.custom import Custom
from gradslide.losses.huber import Huber
from gradslide.losses.jax_function import Jax
from gradslide.losses.least_squares import LeastSquares
from gradslide.losses.linear import Linear
from gradslide.losses.logistic import Logistic
from gradslide.losses.poisson import Poisson
from gradslide.losses.quadratic import Quadratic
from gradslide.losses.smoothed_hinge import SmoothedHinge
from gradslide.losses.softmax import Softmax
from gradslide.losses.stacked import stack
from gradslide.losses.torch_module import Torch

__all__ = [
    "Custom",
    "Huber",
    "Jax",
    "LeastSquares",
    "Linear",
    "Logistic",
    "Loss",
    "LossReport",
    "Poisson",
    "Quadratic",
    "SmoothedHinge",
    "Softmax",
    "Torch",
    "stack",
]
