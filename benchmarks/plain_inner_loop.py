"""The inner iterations of primal-dual sliding as one would write them with NumPy and scipy: what the compiled ones are
measured against. It uses nothing of gradslide, and stays as it is."""

import numpy as np


def plain_inner_loop(x, x_before, s, w, y, laplacian, p, q, alphas, etas, mu, lo, hi):
    """T inner iterations in a box; where they led, and the means over them."""
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
