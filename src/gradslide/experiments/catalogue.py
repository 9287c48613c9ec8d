"""What specs may name: losses, sets, networks, methods, conditions."""

from collections.abc import Callable
from typing import Any

from gradslide import domains, losses, methods, network, oracles
from gradslide.domains import penalties
from gradslide.graphs.graph import Graph
from gradslide.losses import Loss
from gradslide.network import Network, compressors
from gradslide.oracles import Sampling

LOSSES: dict[str, Callable[..., Loss]] = {
    "logistic": losses.Logistic,
    "least_squares": losses.LeastSquares,
    "huber": losses.Huber,
    "smoothed_hinge": losses.SmoothedHinge,
    "softmax": losses.Softmax,
    "poisson": losses.Poisson,
}
DOMAINS: dict[str, Callable[..., domains.Domain]] = {
    "free": domains.Free,
    "box": domains.Box,
    "nonnegative": domains.NonNegative,
    "l2_ball": domains.L2Ball,
    "l1_ball": domains.L1Ball,
    "group_ball": domains.GroupBall,
    "simplex": domains.Simplex,
    "halfspace": domains.Halfspace,
    "affine": domains.Affine,
    "polyhedron": domains.Polyhedron,
    "entropy_simplex": domains.EntropySimplex,
}
PENALTIES: dict[str, Callable[..., penalties.Penalty]] = {
    "l1": penalties.L1,
    "group_l1": penalties.GroupL1,
    "elastic_net": penalties.ElasticNet,
}
TOPOLOGIES: dict[str, Callable[..., Graph]] = {
    name: getattr(Graph, name)
    for name in (
        "random",
        "ring",
        "path",
        "star",
        "complete",
        "grid",
        "torus",
        "hypercube",
        "regular",
        "small_world",
        "geometric",
    )
}
METHODS: dict[str, type[Any]] = {
    "auto": methods.Auto,
    "auto_pds": methods.AutoPDS,
    "lbfgs": methods.LBFGS,
    "newton": methods.Newton,
    "pds": methods.PDS,
    "spds": methods.SPDS,
    "accelerated_tracking": methods.AcceleratedTracking,
    "admm": methods.ADMM,
    "choco_sgd": methods.ChocoSGD,
    "condat_vu": methods.CondatVu,
    "dcs": methods.DCS,
    "dgd": methods.DGD,
    "dlm": methods.DLM,
    "dsgd": methods.DSGD,
    "dual_averaging": methods.DualAveraging,
    "extra": methods.EXTRA,
    "gradient_tracking": methods.GradientTracking,
    "nids": methods.NIDS,
    "opapc": methods.OPAPC,
    "sdcs": methods.SDCS,
}
OURS = ("auto", "auto_pds", "lbfgs", "newton", "pds", "spds")
# A live stream is no part of a file: it takes Python.
ORACLES: dict[str, Callable[..., Sampling]] = {
    "with_replacement": oracles.WithReplacement,
    "without_replacement": oracles.WithoutReplacement,
    "noise": oracles.Noise,
}
COMPRESSORS: dict[str, Callable[..., compressors.Compressor]] = {
    "top_k": compressors.TopK,
    "quantization": compressors.Quantization,
}
# Outermost first: what happens to links is decided before what happens to the messages on them.
CONDITIONS: dict[str, Callable[..., Network]] = {
    "varying": network.Varying,
    "sleeping": network.Sleeping,
    "stragglers": network.Stragglers,
    "bursty": network.Bursty,
    "lossy": network.Lossy,
    "compressed": network.Compressed,
    "noisy": network.Noisy,
}
