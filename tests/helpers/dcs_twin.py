"""Communication sliding as printed, agent by agent."""

from types import SimpleNamespace

import numpy as np
from problems import logistic

import gradslide as gs

SETS = {
    "free": gs.domains.Free,
    "ball": lambda: gs.domains.L2Ball(0.5),
    "box with l1 penalty": lambda: gs.domains.Box(-0.4, 0.3, penalty=gs.L1(0.2)),
    "centred": lambda: gs.domains.Free(center=0.5, penalty=gs.ElasticNet(0.2, 0.1)),
    "entropy": gs.domains.EntropySimplex,
    "one each": lambda: gs.domains.PerAgent(
        [gs.domains.L2Ball(0.4), gs.domains.Box(-0.3, 0.2), gs.domains.Free(penalty=gs.L1(0.3))] * 2
    ),
}


def setting(kind, mu):
    """Six agents, links of several weights."""
    pairs = gs.Graph.random(6, 3, seed=2).edges
    graph = gs.Graph.from_edges(6, pairs, weights=np.linspace(0.5, 2.0, len(pairs)))
    return gs.Problem(logistic(np.random.default_rng(0), 6, 4), SETS[kind](), mu), graph


class Agent:
    """Agent i of the paper's algorithm. mu nu is a part of its f_i, and so of f'."""

    def __init__(self, i, problem, graph):
        self.loss, self.domain, self.mu = problem.loss.take([i]), problem.domain.take([i]), problem.mu
        self.row = graph.laplacian.toarray()[i]
        self.x = self.x_prev = self.x_hat = problem.start()[i : i + 1]
        self.y = 0 * self.x
        self.seen = []

    def weigh(self, messages):
        return sum(weight * message for weight, message in zip(self.row, messages, strict=True))

    def slide(self, w, T, eta, beta, weights, sampled):
        u, all_u = self.x, []
        for t in range(1, T + 1):
            v = self.loss.gradient(u) if sampled is None else sampled[t - 1][None]
            slope = v + self.mu * self.domain.grad_nu(u)
            theta = eta * self.domain.grad_nu(self.x) + eta * beta(t) * self.domain.grad_nu(u) - w - slope
            u = self.domain.prox(theta, eta + eta * beta(t))
            all_u.append(u)
        shares = np.array([weights(t) for t in range(1, T + 1)])
        self.x_prev, self.x = self.x, u
        self.x_hat = np.tensordot(shares / shares.sum(), np.array(all_u), 1)
        self.seen.append(self.x_hat)


def paper(problem, graph, N, *, ratio=1.0, growth=10, most=5000, sampled=None):
    """The algorithm as the paper has it, agent by agent; sampled: the estimates of all f', in their order."""
    agents = [Agent(i, problem, graph) for i in range(graph.m)]
    norm, mu = graph.laplacian_norm, problem.mu
    ys, used = [], 0
    for k in range(1, N + 1):
        T = min(growth * k, most)
        if mu == 0:
            alpha, eta, tau = 1, 2 * ratio * norm, norm / ratio
            weights, beta, thetas = lambda t: t + 1, lambda t: t / 2, np.ones(k)
        else:
            alpha, eta, tau = k / (k + 1), ratio * k * mu / 2, 4 * norm**2 / (ratio * (k + 1) * mu)
            weights, thetas = lambda t: t, np.arange(2, k + 2)
            beta = lambda t, eta=eta: (t + 1) * mu / (2 * eta) + (t - 1) / 2  # noqa: E731
        sent = [a.x + alpha * (a.x_hat - a.x_prev) for a in agents]
        for a in agents:
            a.y = a.y + a.weigh(sent) / tau
        sent = [a.y for a in agents]
        for i, a in enumerate(agents):
            own = None if sampled is None else [v[i] for v in sampled[used : used + T]]
            a.slide(a.weigh(sent), T, eta, beta, weights, own)
        used += T
        ys.append(np.concatenate([a.y for a in agents]))
        hats = np.array([np.concatenate([a.seen[j] for a in agents]) for j in range(k)])
        yield SimpleNamespace(
            x=np.concatenate([a.x for a in agents]),
            x_hat=hats[-1],
            x_bar=np.tensordot(thetas / thetas.sum(), hats, 1),
            y=ys[-1],
            y_bar=np.tensordot(thetas / thetas.sum(), np.array(ys), 1),
            w=graph.laplacian @ ys[-1],
        )


def check_iterates(states, views, *, rtol=1e-8):
    for state, view in zip(states, views, strict=True):
        for name in ("x", "x_hat", "x_bar", "y", "y_bar", "w"):
            np.testing.assert_allclose(getattr(state, name), getattr(view, name), rtol=rtol, atol=1e-10, err_msg=name)
