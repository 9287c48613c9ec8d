"""Sharpen a photograph that is out of focus: total variation deblurring in colour.

For those who restore images from microscopes, telescopes, cameras or scanners: min over x in [0, 1]^n of
1/2 |K x - y|^2 + lam TV(x). Here y is the blurred and noisy photograph and K the blur. TV(x) sums the norms of the
differences of all three colours at every pixel. `gs.Saddle` writes TV as a maximum over multipliers, with one ball for
each pixel. It needs few gradients (two blurs each) and many differences, which helps where blurs are expensive. The
certificate bounds the error. A comparison with other methods: examples/comparisons/tv_deblurring.py.

    python examples/deblurring.py [PICTURE.png]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_sample_image

import gradslide as gs

SHAPE, WIDTH, NOISE, LAM = (100, 150, 3), 1.8, 0.02, 0.003  # pixels and colours; pixels; of the range 0 to 1
PIXELS = SHAPE[0] * SHAPE[1]


def blur(x):
    """A Gaussian, mirrored at the border: its own transpose, of norm 1."""
    return gaussian_filter(x.reshape(SHAPE), WIDTH, axes=(0, 1)).ravel()


def slopes():
    """Differences to the next pixel, downwards and to the right, for each colour; of norm at most sqrt(8)."""
    down, right = (sp.diags_array([np.r_[-np.ones(n - 1), 0], np.ones(n - 1)], offsets=[0, 1]) for n in SHAPE[:2])
    rows, colours = sp.eye_array(SHAPE[0]), sp.eye_array(3)
    return sp.vstack([sp.kron(down, sp.eye_array(3 * SHAPE[1])), sp.kron(rows, sp.kron(right, colours))]).tocsr()


def restoration(y):
    def misfit(x):
        residual = blur(x) - y
        return residual @ residual / 2, blur(residual)

    loss = gs.losses.Custom(value_and_gradient=[misfit], smoothness=1.0, agents=1, dimension=3 * PIXELS)
    steepness = gs.domains.GroupBall(LAM, np.tile(np.repeat(np.arange(PIXELS), 3), 2))
    return gs.Saddle(loss, slopes(), domain=gs.domains.Box(0, 1), dual_domain=steepness, norm=np.sqrt(8))


def psnr(x, photo):
    return -10 * np.log10(np.mean((x - photo) ** 2))


def draw(pictures):
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 2.8), layout="constrained")
    for axis, (title, x) in zip(axes, pictures.items(), strict=True):
        axis.imshow(x.reshape(SHAPE).clip(0, 1), interpolation="nearest")
        axis.set_title(title)
        axis.set_axis_off()
    return figure


def main(picture: Path) -> None:
    large = load_sample_image("flower.jpg")[:400, 20:620] / 255
    photo = large.reshape(SHAPE[0], 4, SHAPE[1], 4, 3).mean(axis=(1, 3)).ravel()
    y = blur(photo) + NOISE * np.random.default_rng(0).normal(size=photo.shape)
    solution = gs.solve(restoration(y), x0=y.clip(0, 1)[None], stop=gs.Stop(gap=gs.Relative(1e-2)))
    print(solution)
    pictures = {"photograph": photo}
    for name, x in {"blurred, with noise": y, "restored": solution.mean}.items():
        print(f"{name:20} {psnr(x, photo):.2f} dB")
        pictures[f"{name}: {psnr(x, photo):.1f} dB"] = x
    draw(pictures).savefig(picture, dpi=150)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("deblurring.png"))
