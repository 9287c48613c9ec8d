"""The inner loop of primal-dual sliding in plain NumPy and SciPy, the baseline of `inner_loop.py`.

It does not depend on gradslide and must not be optimized.
"""

import numpy as np


def plain_inner_loop(x, x_before, s, w, y, laplacian, p, q, alphas, etas, mu, lo, hi):
    """Run T inner iterations in a box; return the final point and the means."""
    T = len(etas)
    x_start = x
    x_sum, s_sum, w_sum = np.zeros_like(x), np.zeros_like(s), np.zeros_like(w)
    for t in range(T):
        u = x + alphas[t] * (x - x_before)
        s = s + u / q
        w = w + laplacian @ u / q
        theta = etas[t] * x + p * x_start - y - w
        x, x_before = np.clip(theta / (mu + etas[t] + p), lo, hi), x
        x_sum += x
        s_sum += s
        w_sum += w
    return x, x_before, s, w, x_sum / T, s_sum / T, w_sum / T
