"""Algorithms 1 and 3 and the parameters of Theorem 2, straight from the paper: naive twins of what the library does."""

import math
from types import SimpleNamespace

import numpy as np

import gradslide as gs


def iterates(problem, graph, method, stop=None, x0=None):
    """The method's state after each outer iteration."""
    seen = []

    class Spy(type(method)):
        def step(self, context, state):
            state = super().step(context, state)
            seen.append(state.copy())
            return state

    gs.solve(problem, graph, Spy(**vars(method)), stop=stop, x0=x0)
    return seen


class Agent:
    """Agent i of Algorithm 1, or of Algorithm 3 where v_k is given. It knows its loss, its row of the Laplacian, and
    its inbox."""

    def __init__(self, i, problem, graph):
        self.loss = problem.loss.take([i])
        self.domain = problem.domain.take([i])
        self.mu = problem.mu
        laplacian = graph.laplacian.toarray()
        self.row = {j: laplacian[i, j] for j in np.flatnonzero(laplacian[i])}
        start = problem.start()[i]
        self.x = self.x_prev = self.x_before = self.x_hat = self.x_under = self.x_bar = start
        self.z = np.zeros_like(start)
        self.S = 0.0

    def weigh(self, inbox):
        """sum over the neighbourhood of L^(i,j) times what j sent"""
        return sum(self.row[j] * inbox[j] for j in self.row)

    def begin(self, row, v=None):
        self.x_tilde = self.x + row.lam * (self.x_hat - self.x_prev)
        self.x_under = (self.x_tilde + row.tau * self.x_under) / (1 + row.tau)
        self.y = self.loss.gradient(self.x_under[None])[0] if v is None else v
        self.anchor, self.inner = self.x, []

    def extrapolate(self, alpha):
        return self.x + alpha * (self.x - self.x_before)

    def ascend(self, inbox, q):
        self.z = self.z + self.weigh(inbox) / q
        return self.z

    def descend(self, inbox, eta, p):
        theta = (
            eta * self.domain.grad_nu(self.x[None])[0]
            + p * self.domain.grad_nu(self.anchor[None])[0]
            - self.y
            - self.weigh(inbox)
        )
        self.x_before, self.x = self.x, self.domain.prox(theta[None], self.mu + eta + p)[0]
        self.inner.append(self.x)

    def end(self, row):
        self.x_prev, self.x_hat = self.anchor, np.mean(self.inner, axis=0)
        self.x_bar = (self.S * self.x_bar + row.beta * self.x_hat) / (self.S + row.beta)
        self.S += row.beta


def agent_view(problem, graph, rows, sampled=None):
    """What all agents hold after each outer iteration; sampled: the v_k (m, d) that they draw, if they do."""
    agents = {i: Agent(i, problem, graph) for i in range(graph.m)}

    def inbox(messages, i):
        return {j: messages[j] for j in agents[i].row}

    for n, row in enumerate(rows):
        for i, agent in agents.items():
            agent.begin(row, None if sampled is None else sampled[n][i])
        for t in range(1, row.T + 1):
            sent = {i: agent.extrapolate(row.alpha(t)) for i, agent in agents.items()}
            sent = {i: agent.ascend(inbox(sent, i), row.q) for i, agent in agents.items()}
            for i, agent in agents.items():
                agent.descend(inbox(sent, i), row.eta(t), row.p)
        for agent in agents.values():
            agent.end(row)
        names = ("x", "x_hat", "x_under", "x_bar", "y", "z")
        yield SimpleNamespace(**{name: np.stack([getattr(a, name) for a in agents.values()]) for name in names})


def edge_form(problem, graph, rows, sampled=None):
    """The same with one multiplier z per edge: z <- z + B^T u / q, and A^T z = B z."""
    B = graph.incidence.toarray()
    domain, mu = problem.domain, problem.mu
    x = x_prev = x_before = x_hat = x_under = x_bar = problem.start()
    z, S = np.zeros((B.shape[1], problem.d)), 0.0
    for n, row in enumerate(rows):
        x_under = (x + row.lam * (x_hat - x_prev) + row.tau * x_under) / (1 + row.tau)
        y = problem.loss.gradient(x_under) if sampled is None else sampled[n]
        anchor, inner = x, []
        for t in range(1, row.T + 1):
            z = z + B.T @ (x + row.alpha(t) * (x - x_before)) / row.q
            theta = row.eta(t) * domain.grad_nu(x) + row.p * domain.grad_nu(anchor) - y - B @ z
            x, x_before = domain.prox(theta, mu + row.eta(t) + row.p), x
            inner.append(x)
        x_prev, x_hat = anchor, np.mean(inner, axis=0)
        x_bar = (S * x_bar + row.beta * x_hat) / (S + row.beta)
        S += row.beta
        yield SimpleNamespace(x=x, x_hat=x_hat, x_under=x_under, x_bar=x_bar, y=y, z=z)


def check_iterates(state, view, rtol):
    """The state of a method against a view of ours."""
    for name in ("x", "x_hat", "x_under", "x_bar", "y"):
        np.testing.assert_allclose(getattr(state, name), getattr(view, name), rtol=rtol, atol=1e-12)


def theorem_2_rows(*, N, L, mu, A_norm, R, c):
    """eq:par_beforeDelta_S to eq:par_allk_S, with tau rounded up to ceil(2 tau)/2."""
    tau = math.ceil(2 * 2 * math.sqrt(L / mu)) / 2 if mu > 0 else math.inf
    Delta = math.ceil(2 * tau + 1) if mu > 0 else math.inf
    rows, last = [], None
    for k in range(1, N + 1):
        if k <= Delta:
            tau_k, lam, beta, p = (k - 1) / 2, (k - 1) / k, k, 4 * L / k
            T = math.ceil(k * R * A_norm / L)
            c_k = math.ceil(min(N, Delta) * beta * c / (p * L))
        else:
            tau_k, lam = tau, tau / (1 + tau)
            beta, p = Delta * lam ** -(k - Delta), 2 * L / (1 + tau)
            T = math.ceil(2 * (1 + tau) * R * A_norm / (L * lam ** ((k - Delta) / 2)))
            c_k = math.ceil((1 + tau) ** 2 * Delta * c / (L**2 * lam ** ((k + N - 2 * Delta) / 2)))
        row = _Row(k=k, tau=tau_k, lam=lam, beta=beta, p=p, T=T, c=c_k, q=L * T / (4 * beta * R**2), mu=mu, last=last)
        rows.append(row)
        last = row
    return rows


class _Row(SimpleNamespace):
    def eta(self, t):
        return (self.p + self.mu) * (t - 1) + self.p * self.T

    def alpha(self, t):
        if t > 1 or self.last is None:
            return 1.0
        return self.last.beta * self.T / (self.beta * self.last.T)
