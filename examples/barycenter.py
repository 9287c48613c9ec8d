"""The average of ten pictures that stay with ten owners: a Wasserstein barycenter over a ring of agents.

For those who average shapes, spectra or densities that are shifted against each other and must stay with their owners.
The plain average of shifted digits is a smear; the barycenter is a digit. Each agent has one handwritten digit
(scikit-learn's, shifted and scaled). Its loss is the cost of moving the common picture x onto its own: squared
distances, smoothed by entropy (Cuturi and Peyre, SIAM J. Imaging Sci. 9, 2016; over networks: Uribe et al., CDC 2018,
by another method). A gradient takes Sinkhorn's iterations, and x stays on the simplex.

    python examples/barycenter.py [PICTURE.png]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

import gradslide as gs

AGENTS, SIDE, DIGIT = 10, 24, 3
EPS, EVEN, SINKHORN = 0.004, 0.1, 200  # in squared widths of a picture; part of x that is spread evenly; iterations
KERNEL = np.exp(-(np.subtract.outer(range(SIDE), range(SIDE)) ** 2) / SIDE**2 / EPS)  # of one axis


def digits(rng):
    """(agents, pixels), each row of sum 1."""
    data, pictures = load_digits(), np.zeros((AGENTS, SIDE, SIDE))
    for picture, digit in zip(pictures, data.images[data.target == DIGIT], strict=False):
        large = zoom(digit, rng.uniform(1.4, 2.2), order=1)
        (height, width), (top, left) = large.shape, rng.integers(SIDE - np.array(large.shape), endpoint=True)
        picture[top : top + height, left : left + width] = large
    return pictures.reshape(AGENTS, -1) / pictures.sum(axis=(1, 2))[:, None]


def blur(b):
    return (KERNEL @ b.reshape(-1, SIDE, SIDE) @ KERNEL).reshape(b.shape)


def transport(x, owned):
    """The transport cost from x to each agent's picture, and its gradient. EVEN leaves no pixel empty, so the cost is
    smooth. A method may step out of the simplex a little: the cost continues as its tangent there."""
    inside = np.maximum(x, 0) / np.maximum(x, 0).sum(axis=1, keepdims=True)
    mass, b = (1 - EVEN) * inside + EVEN / SIDE**2, np.ones_like(x)
    for _ in range(SINKHORN):
        b = owned / blur(mass / blur(b))
    potential, other = EPS * np.log(mass / blur(b)), EPS * np.log(np.where(owned > 0, b, 1))
    gradient = (1 - EVEN) * potential
    return np.sum(mass * potential + owned * other + gradient * (x - inside), axis=1), gradient


def draw(owned, average, barycenter):
    figure, axes = plt.subplot_mosaic("01234AABB;56789AABB", figsize=(10.5, 2.9), layout="constrained")
    pictures = {str(agent): picture for agent, picture in enumerate(owned)} | {"A": average, "B": barycenter}
    for name, picture in pictures.items():
        axes[name].imshow(picture.reshape(SIDE, SIDE), cmap="magma")
        axes[name].set(xticks=[], yticks=[])
    for name, title in {"2": "one picture for each agent", "A": "plain average", "B": "barycenter"}.items():
        axes[name].set_title(title)
    return figure


def main(picture: Path) -> None:
    owned = digits(np.random.default_rng(0))
    loss = gs.losses.Custom(value_and_gradient=lambda x: transport(x, owned), agents=AGENTS, dimension=SIDE**2)
    enough = gs.Stop(gap=gs.Relative(1e-2), disagreement=gs.Relative(1e-2))
    solution = gs.solve(gs.Problem(loss, gs.domains.Simplex()), gs.Graph.ring(AGENTS), stop=enough)
    print(solution)
    for name, x in {"plain average": owned.mean(axis=0), "barycenter": solution.mean}.items():
        cost = np.mean(transport(np.tile(x, (AGENTS, 1)), owned)[0])
        print(f"{name:13} sums to {x.sum():.6f}; moving it onto the agents' pictures costs {cost:.5f} on average")
    draw(owned, owned.mean(axis=0), solution.mean).savefig(picture, dpi=150)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("barycenter.png"))
