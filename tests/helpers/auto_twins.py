"""Auto mode for its tests: a naive twin, which keeps to the rules line by line with dense matrices; problems, and ways
to look into a run."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from baselines import UNLIKE
from problems import logistic
from scipy.sparse.csgraph import shortest_path

import gradslide as gs
from gradslide.methods.gossip.rules import JUMP

RADIUS = 5.0
AGREEMENTS = ["exact", "late", "none"]
GRAPHS = {
    "ring": gs.Graph.ring(12),
    "star": gs.Graph.star(12),
    "random": gs.Graph.random(14, 4, seed=3),
    "weighted": gs.Graph.from_edges(10, [(i, (i + 1) % 10) for i in range(10)], np.linspace(0.5, 2, 10)),
}
FREE, BALL, LASSO = gs.domains.Free(), gs.domains.L2Ball(RADIUS), gs.domains.Free(penalty=gs.L1(0.3))
# One for each agent, and what they have in common.
BOXES, COMMON_BOX = UNLIKE["sets"], gs.domains.Box(-0.2, 0.3)


class Net:
    """What is known of the network: D, N = D^-1 Lap, the ends of its spectrum, and how late news comes."""

    def __init__(self, graph):
        Lap = graph.laplacian.toarray()
        D = np.maximum(1, np.diag(Lap) / (2 * np.diag(Lap).mean()))
        self.D = (D / D.mean())[:, None]
        root = np.sqrt(self.D)
        values = np.linalg.eigvalsh(Lap / root / root.T)
        self.Lap, self.N, self.l2, self.hi = Lap, Lap / self.D, values[1], values[-1]
        hops = shortest_path(np.abs(Lap) > 0, unweighted=True)
        self.tree, self.diameter = 2 * int(hops.max(axis=1).min()), int(hops.max())
        self.survey = self.diameter + self.tree // 2
        self.K = math.ceil(self.reach / 3)

    @property
    def reach(self):
        return math.sqrt(self.hi / self.l2)

    def mix(self, v, K):
        if K == 1:
            return v - self.N @ v / self.hi
        lo = max(self.l2, self.hi / K**2)
        th, de = (self.hi + lo) / 2, (self.hi - lo) / 2
        sg = th / de
        rho = 1 / sg
        dl = -self.N @ v / th
        u = v + dl
        for _ in range(K - 1):
            rho_next = 1 / (2 * sg - rho)
            dl = rho_next * rho * dl - (2 * rho_next / de) * (self.N @ u)
            u, rho = u + dl, rho_next
        return v - (v - u) / (1 + 1 / math.cosh(K * math.acosh(sg)))


def nothing(v, step):
    return v


def onto_ball(v, step):
    return np.array([row * min(1, RADIUS / np.linalg.norm(row)) for row in v])


def shrunk(v, step):
    return np.sign(v) * np.maximum(np.abs(v) - 0.3 * step, 0)


# The domain, its prox with a step, and its r.
KINDS = {
    "free": (FREE, nothing, lambda x: np.zeros(len(x))),
    "ball": (BALL, onto_ball, lambda x: np.zeros(len(x))),
    "lasso": (LASSO, shrunk, lambda x: 0.3 * np.abs(x).sum(axis=1)),
}


def hard_problem(domain, make_loss, m, mu=0.01):
    """Slow enough that rounding does not show in what is tested."""
    rng = np.random.default_rng(1)
    features, shift = rng.normal(size=(8 * m, 6)) * np.geomspace(1, 0.05, 6), rng.normal(size=(m, 1, 6))
    features = (features.reshape(m, 8, 6) + 0.3 * shift).reshape(-1, 6)
    scores = features @ np.geomspace(0.3, 6, 6) + rng.normal(size=8 * m)
    if make_loss is logistic:
        return gs.Problem(gs.losses.Logistic(features, np.where(scores > 0, 1, -1), agents=m), domain, mu)
    return gs.Problem(gs.losses.LeastSquares(features, scores, agents=m), domain, mu)


class Twin:
    """One outer iteration of rule 4 (kind "free") or 5, and what was spent."""

    def __init__(self, problem, graph, kind, first_L=None, is_alone=False):
        """is_alone: each agent knows its own curvature only."""
        self.is_alone, self.blur = is_alone, 0.0
        self.rolled_back = self.went_on = False
        self.loss, self.mu, self.kind = problem.loss, problem.mu, kind
        _, self.prox, self.r = KINDS[kind]
        self.net = net = Net(graph)
        self.gradients = self.rounds = self.control = 0
        self.x = problem.start()
        self.w = np.zeros_like(self.x)
        self.K, self.K_max = net.K, max(net.K, math.ceil(2 * net.reach))
        self.known = self.gradient(self.x)
        self.L = first_L
        if first_L is None:
            plain = self.known - self.mu * self.x
            # Each agent goes as far, and counts as if all had gone down their gradients.
            far = 1e3 * np.linalg.norm(plain, axis=1, keepdims=True)
            e = -plain / far
            change = self.gradient(self.x + e) - self.known
            self.L = math.sqrt(self.squared(far * change / net.D) / self.squared(plain))
        self.control = net.survey
        self.risen = False
        self.epoch = self.generation = -1
        self.start()

    def squared(self, v):
        return float(np.sum(self.net.D * v * v))

    def gradient(self, x):
        self.gradients += 1
        return self.loss.gradient(x) + self.mu * x

    def value(self, x):
        return self.loss.value(x) + self.mu / 2 * np.sum(x * x, axis=1)

    def start(self):
        """A new epoch, at x."""
        self.S = self.slack = 0.0
        self.xbar, self.P, self.k = self.x, self.L, 0
        self.epoch, self.generation = self.epoch + 1, self.generation + 1
        self.raised = False

    def tried(self):
        """(a), (b), (c)"""
        net, L, P, S, x, xbar, w = self.net, self.L, self.P, self.S, self.x, self.xbar, self.w
        b = (P + math.sqrt(P**2 + 4 * L * P * S)) / (2 * L)
        t = SimpleNamespace(S=S + b, b=b)
        p = P / b
        x_under = (S * xbar + b * x) / t.S
        y = self.gradient(x_under) if self.known is None else self.known
        self.known = None
        v = x - (y + w) / (p * net.D)
        u = net.mix(v, self.K)
        self.rounds += self.K
        t.w = w + p * net.D * (v - u)
        if self.kind == "free":
            t.x, t.xbar, Q = u, (S * xbar + b * u) / t.S, y + t.w
        else:
            t.xbar = self.prox((S * xbar + b * u) / t.S, 1 / L)
            t.x = xbar + (t.S / b) * (t.xbar - xbar)
            Q = p * net.D * (x_under - self.prox(x_under - (y + w) / (p * net.D), 1 / (p * net.D)))
        d = t.xbar - x_under
        t.y, t.E = y, math.sqrt(self.squared(Q / net.D))
        gaps = self.value(t.xbar) - self.value(x_under) - np.sum(y * d, axis=1)
        t.d2, t.f = self.squared(d), float(np.abs(self.value(t.xbar)).sum())
        t.Lr = 2 * float(gaps.sum()) / t.d2
        squares = net.D[:, 0] * np.sum(d * d, axis=1)
        noise = 1e-13 * np.abs(self.value(t.xbar)) / squares
        visible = noise < 0.05 * L
        self.blur = max(self.blur, float(noise.max() if self.is_alone else 1e-13 * t.f / t.d2) / L)
        t.Lr_max = max(
            2 * gap / square if seen else 0.0 for gap, square, seen in zip(gaps, squares, visible, strict=True)
        )
        t.Lam = float((self.value(t.xbar) + self.r(t.xbar)).sum() + np.sum(t.w * t.xbar))
        t.Lam_before = float((self.value(xbar) + self.r(xbar)).sum() + np.sum(t.w * xbar))
        return t

    def place(self):
        return self.k, self.S, self.x, self.xbar, self.w

    def accept(self, t):
        self.S, self.x, self.xbar, self.w = t.S, t.x, t.xbar, t.w
        self.k += 1

    def is_noise(self, t):
        return 1e-13 * t.f >= 0.05 * self.L * t.d2

    def show(self):
        names = (
            "xbar",
            "x",
            "w",
            "L",
            "K",
            "P",
            "S",
            "k",
            "epoch",
            "gradients",
            "rounds",
            "control",
            "blur",
            "rolled_back",
            "went_on",
        )
        return SimpleNamespace(**{name: getattr(self, name) for name in names})


def exact_rule(problem, graph, kind, iterations, balance=1.0):
    twin = Twin(problem, graph, kind)
    fall = 0.9
    if balance >= 5:
        # Where gradients are expensive, L begins low, and falls fast until it first has to rise.
        twin.L, twin.P, fall = twin.L / 2, twin.L / 2, 0.7
        twin.K = math.ceil(max(twin.net.reach / 3, math.sqrt(0.35 * balance * twin.net.reach)))
        twin.K_max = max(twin.K, twin.K_max)
    Lam = E_before = None
    for n in range(iterations):
        while True:
            t = twin.tried()
            twin.control += twin.net.tree
            viol = t.S * ((t.Lr - twin.L) * t.d2 / 2 - 1e-13 * t.f)
            if twin.slack + viol <= 0:
                break
            twin.L = max(1.2 * twin.L, min(1.2 * t.Lr, 4 * twin.L))
            fall = 0.9 if n > 0 else fall
            if twin.k == 0:
                twin.P, twin.known = twin.L, t.y
        twin.slack += viol
        noisy = twin.is_noise(t)
        twin.accept(t)
        if not noisy:
            twin.L = min(max(fall * twin.L, 1.2 * t.Lr), max(twin.L, 1.2 * t.Lr))
        if (twin.k >= 15 and t.Lam > Lam) or (twin.k >= 2 and t.Lam > t.Lam_before):
            twin.x = twin.xbar
            if E_before is not None and t.E > 0.5 * E_before:
                twin.K = min(twin.K_max, math.ceil(1.5 * twin.K))
            E_before = t.E
            twin.start()
        Lam = t.Lam
        yield twin.show()


def late_rule(problem, graph, kind, iterations, first_L=None):
    twin = Twin(problem, graph, kind, first_L)
    tree = twin.net.tree
    outstanding, E_ref, failures = [], None, 0
    points, Lams = {0: twin.place()}, {}
    falls = failed_at = edge = 0
    for _ in range(iterations):
        t = twin.tried()
        twin.accept(t)
        t.generation, t.k, t.due = twin.generation, twin.k, twin.rounds + tree
        delay = math.ceil(tree / twin.K)
        outstanding.append(t)
        ends, unstable = False, None
        while outstanding and outstanding[0].due <= twin.rounds:
            j = outstanding.pop(0)
            if not twin.is_noise(j):
                if 1.2 * j.Lr > twin.L:
                    if falls >= 5:
                        edge, failed_at = 2 * twin.L, j.k if j.generation == twin.generation else 0
                    twin.L = min(1.2 * j.Lr, 4 * twin.L)
                    twin.risen, twin.raised, falls = True, True, 0
                else:
                    c = max(0.93, 1 - 0.18 / delay) if first_L is None else 0.1
                    if twin.risen:
                        c = 0.98 if twin.L > edge else 0.995
                    twin.L = max(c * twin.L, 1.2 * j.Lr)
                    falls += 1
                    failed_at = failed_at if falls < 5 else 0
            if j.generation != twin.generation:
                continue
            if failed_at and j.k > failed_at + delay + 5:
                failed_at = 0
            Lams[j.k], E = j.Lam, j.E
            now, before = (Lams[i] - Lams.get(i - 1, math.nan) if i in Lams else math.nan for i in (j.k, j.k - 2))
            ends = ends or (j.k >= 2 and j.Lam > j.Lam_before) or (j.k >= 25 and now > 0)
            if j.k >= 25 and now > before:
                ends = ends or now + delay * (now - before) / 2 > 0
            if j.Lam - j.Lam_before > (0 if failed_at else JUMP * abs(j.Lam_before)):
                unstable = unstable or j.k
        if unstable:
            # The last iteration is discarded before its sums have started.
            outstanding = [each for each in outstanding if each is not t]
            target = failed_at - 2 if failed_at else unstable - 1
            target = max([k for k in points if k <= target], default=min(points))
            twin.k, twin.S, twin.x, twin.xbar, twin.w = points[target]
            twin.rolled_back = True
        if unstable and failed_at:
            twin.generation += 1
            twin.went_on, failed_at = True, 0
            points, Lams = {twin.k: twin.place()}, {}
        elif ends or unstable:
            failed_at = 0
            twin.x = twin.xbar
            if E_ref is None or E <= 0.5 * E_ref:
                E_ref, failures = E, 0
            elif twin.raised and failures == 0:
                failures = 1
            else:
                twin.K, E_ref, failures = min(twin.K_max, math.ceil(1.5 * twin.K)), E, 0
            twin.start()
            points, Lams = {0: twin.place()}, {}
        else:
            waiting = min([each.k for each in outstanding if each.generation == twin.generation], default=twin.k + 1)
            if len(points) > 1 and max(points) <= min(waiting, failed_at or waiting) - 2:
                del points[min(points)]
            if len(points) == 1:
                points[twin.k] = twin.place()
        yield twin.show()


def scheduled_rule(problem, graph, kind, iterations):
    twin = Twin(problem, graph, kind, is_alone=True)
    net = twin.net
    outstanding = []
    for _ in range(iterations):
        t = twin.tried()
        twin.accept(t)
        outstanding.append((twin.rounds + net.diameter, t.Lr_max))
        while outstanding and outstanding[0][0] <= twin.rounds:
            _, Lr = outstanding.pop(0)
            if Lr > 0:
                twin.L = max(0.98 * twin.L, min(0.8 * Lr, 4 * twin.L))
        if twin.k == 30 * 2**twin.epoch:
            twin.x = twin.xbar
            twin.start()
        yield twin.show()


RULES = {"exact": exact_rule, "late": late_rule, "none": scheduled_rule}


def followed(problem, network, method, iterations, **options):
    """The state after each outer iteration, and the solution."""
    states = []

    class Spy(type(method)):
        def step(self, context, state):
            state = super().step(context, state)
            states.append(state.copy())
            return state

    stop = gs.Stop(iterations=iterations)
    return states, gs.solve(problem, network, Spy(**vars(method)), stop=stop, **options)


def check_against(twins, states, solution, tolerance=1e-6):
    """Iterates, L, K and restarts, and what was counted, up to where rounding shows in L; how far that is."""
    history = solution.history
    for n, (twin, state) in enumerate(zip(twins, states, strict=True)):
        if twin.blur > tolerance:
            return n
        scale = 1e-6 + np.abs(twin.xbar).max()
        np.testing.assert_allclose(
            state.iterate.x_bar, twin.xbar, rtol=tolerance, atol=tolerance * scale, err_msg=str(n)
        )
        np.testing.assert_allclose(state.iterate.dual.w, twin.w, rtol=tolerance, atol=tolerance * np.abs(twin.w).max())
        assert state.smoothness.L == pytest.approx(twin.L, rel=tolerance)
        assert (state.iterate.P, state.iterate.S) == pytest.approx((twin.P, twin.S), rel=tolerance)
        assert (state.tuning.K, state.epoch, state.iterate.k) == (twin.K, twin.epoch, twin.k), n
        record = history[n]
        assert record.gradients == twin.gradients
        assert record.control_rounds == twin.control
        # The last record is taken after the answers were mixed.
        assert n == len(states) - 1 or record.rounds == twin.rounds
    return len(states)


def opened(problem, network, method):
    """The context of a run, and its first state."""
    kept = []

    class Spy(type(method)):
        def init(self, context):
            kept.append((context, super().init(context)))
            return kept[0][1]

    gs.solve(problem, network, Spy(**vars(method)), stop=gs.Stop(iterations=1))
    return kept[0]


def solved(problem, network, method, optimum, *, tolerance=1e-6, disagreement=1e-5, iterations=3000, **options):
    stop = gs.Stop(
        objective=gs.Relative(tolerance, to=optimum), disagreement=gs.Relative(disagreement), iterations=iterations
    )
    solution = gs.solve(problem, network, method, stop=stop, record_every=5, **options)
    assert solution.status is gs.Status.CONVERGED, (method, solution.status)
    return solution
