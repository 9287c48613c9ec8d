"""Auto mode: iterate by iterate against its rules; what is guaranteed, where it ends, what it costs, how it goes on."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from agents import iterates
from messages import check_message
from problems import DOMAINS, LOSSES, alike_case, least_squares, logistic, random_case
from rivals import (
    UNLIKE,
    check_invariant,
    check_lone_agent,
    check_unlike_domains,
    check_warm_start,
    own_starts,
    small_problem,
    stepped_twice,
)
from scipy.sparse.csgraph import shortest_path

import gradslide as gs
from gradslide.coupling import Dual
from gradslide.methods.adaptive.agreement import _JUMP as JUMP
from gradslide.methods.adaptive.inner import Own
from gradslide.methods.adaptive.plan import plan_for
from gradslide.methods.adaptive.state import Weights
from gradslide.reference import reference

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


# A naive twin: the rules, line by line, with dense matrices


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
        self.is_alone, self.blur, self.went_back = is_alone, 0.0, False
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
            e = -1e-3 * plain / np.linalg.norm(plain, axis=1).max()
            change = self.gradient(self.x + e) - self.known
            self.L = math.sqrt(self.squared(change / net.D) / self.squared(e))
        self.risen = False
        self.epoch = -1
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
        self.epoch += 1
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
            "went_back",
        )
        return SimpleNamespace(**{name: getattr(self, name) for name in names})


def exact_rule(problem, graph, kind, iterations, balance=1.0):
    twin = Twin(problem, graph, kind)
    fall = 0.9
    if balance >= 5:
        # Where gradients are dear, L begins low, and falls fast until it first has to rise.
        twin.L, twin.P, fall = twin.L / 4, twin.L / 4, 0.6
        twin.K = math.ceil(max(twin.net.reach / 3, math.sqrt(0.35 * balance * twin.net.reach)))
        twin.K_max = max(twin.K, twin.K_max)
    twin.control = 2 * twin.net.diameter + twin.net.tree
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
    twin.control = 2 * twin.net.diameter + tree if first_L is None else twin.net.diameter
    on_their_way, E_ref, failures = [], None, 0
    points, Lams = {0: (twin.xbar, twin.w)}, {}
    for _ in range(iterations):
        t = twin.tried()
        twin.accept(t)
        t.epoch, t.k, t.due = twin.epoch, twin.k, twin.rounds + tree
        points[twin.k] = (twin.xbar, twin.w)
        on_their_way.append(t)
        ends, jump = False, None
        while on_their_way and on_their_way[0].due <= twin.rounds:
            j = on_their_way.pop(0)
            if not twin.is_noise(j):
                if 1.2 * j.Lr > twin.L:
                    twin.L = min(1.2 * j.Lr, 4 * twin.L)
                    twin.risen = twin.raised = True
                else:
                    c = 0.98 if twin.risen else 0.97 if first_L is None else 0.1
                    twin.L = max(c * twin.L, 1.2 * j.Lr)
            if j.epoch != twin.epoch:
                continue
            Lams[j.k], E = j.Lam, j.E
            g = {i: Lams[i] - Lams[i - 1] for i in Lams if i >= 2}
            ends = ends or (j.k >= 2 and j.Lam > j.Lam_before) or (j.k >= 25 and g[j.k] > 0)
            if j.k >= 25 and g[j.k] > g[j.k - 2]:
                ends = ends or g[j.k] + math.ceil(tree / twin.K) * (g[j.k] - g[j.k - 2]) / 2 > 0
            if j.Lam - j.Lam_before > JUMP * abs(j.Lam_before):
                ends, jump = True, jump or j.k
        if ends:
            if jump:
                twin.xbar, twin.w = points[jump - 1]
                twin.went_back = True
            twin.x = twin.xbar
            if E_ref is None or E <= 0.5 * E_ref:
                E_ref, failures = E, 0
            elif twin.raised and failures == 0:
                failures = 1
            else:
                twin.K, E_ref, failures = min(twin.K_max, math.ceil(1.5 * twin.K)), E, 0
            twin.start()
            points, Lams = {0: (twin.xbar, twin.w)}, {}
        yield twin.show()


def scheduled_rule(problem, graph, kind, iterations):
    twin = Twin(problem, graph, kind, is_alone=True)
    net = twin.net
    # The first L is the largest of the agents' own.
    y = problem.loss.gradient(problem.start())
    e = -1e-3 * y / np.linalg.norm(y, axis=1).max()
    changes = problem.loss.gradient(problem.start() + e) - y + problem.mu * e
    twin.L = twin.P = float(np.max(np.linalg.norm(changes, axis=1) / np.linalg.norm(e, axis=1) / net.D[:, 0]))
    twin.control = 3 * net.diameter
    on_their_way = []
    for _ in range(iterations):
        t = twin.tried()
        twin.accept(t)
        on_their_way.append((twin.rounds + net.diameter, t.Lr_max))
        while on_their_way and on_their_way[0][0] <= twin.rounds:
            _, Lr = on_their_way.pop(0)
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
            states.append(state)
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
        np.testing.assert_allclose(state.x_bar, twin.xbar, rtol=tolerance, atol=tolerance * scale, err_msg=str(n))
        np.testing.assert_allclose(state.dual.w, twin.w, rtol=tolerance, atol=tolerance * np.abs(twin.w).max())
        assert state.L == pytest.approx(twin.L, rel=tolerance)
        assert (state.P, state.S) == pytest.approx((twin.P, twin.S), rel=tolerance)
        assert (state.memory.K, state.epoch, state.k) == (twin.K, twin.epoch, twin.k), n
        record = history[n]
        assert record.gradients == twin.gradients
        assert record.control_rounds == twin.control
        # The last record is taken after the answers were mixed.
        assert n == len(states) - 1 or record.rounds == twin.rounds
    return len(states)


CELLS = [("ring", logistic), ("star", logistic), ("random", least_squares), ("weighted", least_squares)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "make_loss"), CELLS, ids=[name for name, _ in CELLS])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_it_keeps_to_the_rules(agreement, name, make_loss, kind):
    graph = GRAPHS[name]
    problem = hard_problem(KINDS[kind][0], make_loss, graph.m)
    twins = list(RULES[agreement](problem, graph, kind, 60))
    compared = check_against(twins, *followed(problem, graph, gs.AutoPDS(agreement=agreement), 60))
    assert compared >= 30
    assert twins[compared - 1].epoch >= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [1e-3, 1e-1, 1e3])
def test_a_wrong_first_guess_is_made_good_late_by_the_rules(share, kind):
    """Too small: sums that come late tell of a jump, and all go back to where they were before it."""
    graph = GRAPHS["ring"]
    problem = hard_problem(KINDS[kind][0], logistic, graph.m)
    L = share * (float(np.max(problem.smoothness())) + problem.mu)
    twins = list(late_rule(problem, graph, kind, 60, L))
    states, solution = followed(problem, graph, gs.AutoPDS(agreement="late", first_L=L), 60)
    assert check_against(twins, states, solution) >= 30
    assert share > 1 or any(twin.went_back for twin in twins)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ring", "star"])
def test_it_keeps_to_the_rules_where_gradients_are_dear(name, kind):
    graph = GRAPHS[name]
    problem = hard_problem(KINDS[kind][0], logistic, graph.m)
    twins = list(exact_rule(problem, graph, kind, 40, balance=20.0))
    dear = [
        followed(problem, graph, gs.AutoPDS(agreement=agreement, balance=20.0), 40) for agreement in ("exact", "late")
    ]
    assert check_against(twins, *dear[0]) >= 15
    # Sums at once cost less than what late ones cost in gradients: they are waited for, on a star for sure.
    if name == "star":
        assert check_against(twins, *dear[1]) >= 15


# What is guaranteed


def total(problem, x):
    """sum_i f_i(x_i), the ridge and the penalty in it."""
    return float(np.sum(problem.loss.value(x) + problem.mu * problem.domain.nu(x) + problem.domain.r(x)))


def accelerated_errors(problem, graph, method, iterations=20):
    """Of each iteration, f(xbar) - f*, and P |x0 - x*|_D^2/(2 S_k), with what rounding may add."""
    optimum = reference(problem)
    states, _ = followed(problem, graph, method, iterations, record_every=iterations)
    assert all(state.epoch == 0 for state in states)
    start = problem.start() - optimum.x
    distance = float(np.sum(Net(graph).D * start * start))
    f = optimum.objective
    return [(total(problem, s.x_bar) - f, s.P * distance / (2 * s.S) + 1e-11 * (1 + abs(f))) for s in states]


EUCLIDEAN = [name for name in DOMAINS if name != "entropy"]


@pytest.mark.parametrize("batch", range(6))
def test_the_accelerated_bound_holds_at_every_iteration_where_averages_are_exact(batch):
    """On a complete graph one exchange averages. 102 problems, of all kinds of losses and common sets: 54 in R^d."""
    for seed in range(batch, 102, 6):
        rng = np.random.default_rng(seed)
        loss = LOSSES[seed % 6](rng, int(rng.integers(2, 7)), 4)
        name = "free" if seed < 54 else EUCLIDEAN[seed // 6 % len(EUCLIDEAN)]
        problem = gs.Problem(loss, DOMAINS[name](loss.d), 0.1 * (seed % 4 == 3))
        graph = gs.Graph.complete(problem.m)
        errors = accelerated_errors(problem, graph, gs.AutoPDS(agreement="exact", restarts=False))
        for k, (error, bound) in enumerate(errors):
            assert error <= bound, (seed, name, k)


@pytest.mark.parametrize("first", [1e-4, 1e3])
def test_the_accelerated_bound_holds_whatever_the_first_guess(first):
    for seed in range(10):
        problem = alike_case(seed).problem
        method = gs.AutoPDS(agreement="exact", restarts=False, first_L=first)
        assert all(error <= bound for error, bound in accelerated_errors(problem, gs.Graph.complete(problem.m), method))


@pytest.mark.parametrize("name", ["free", "l2 ball", "l1 penalty"])
def test_the_accelerated_bound_holds_in_the_weighted_norm(name):
    """A star with so many exchanges that the weighted average is exact."""
    graph = gs.Graph.star(9)
    assert np.ptp(Net(graph).D) > 0.3
    for seed in range(8):
        loss = LOSSES[seed % 6](np.random.default_rng(seed), 9, 4)
        problem = gs.Problem(loss, DOMAINS[name](loss.d), 0.05)
        method = gs.AutoPDS(agreement="exact", restarts=False, K=30)
        assert all(error <= bound for error, bound in accelerated_errors(problem, graph, method)), seed


def test_the_accelerated_bound_is_broken_by_an_L_that_is_far_too_small():
    problem = alike_case(0).problem
    L = float(np.max(problem.smoothness()))
    graph = gs.Graph.complete(problem.m)
    small, true = (gs.AutoPDS(agreement="exact", restarts=False, L=each) for each in (0.02 * L, L))
    assert any(error > 10 * bound for error, bound in accelerated_errors(problem, graph, small, 8))
    assert all(error <= bound for error, bound in accelerated_errors(problem, graph, true, 8))


@pytest.mark.parametrize("share", [None, 1e-3, 1e2])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_L_never_passes_what_the_losses_need(agreement, share):
    """L rises only where the curvature that was seen, at most max_i L_i/D_i, is above it, and to 1.2 of it at most."""
    for name in ("star", "random"):
        graph = GRAPHS[name]
        problem = small_problem(4, None, 0.05, logistic, graph.m, 4)
        needed = float(np.max((problem.smoothness() + problem.mu) / Net(graph).D[:, 0]))
        first = None if share is None else share * needed
        states, _ = followed(problem, graph, gs.AutoPDS(agreement=agreement, first_L=first), 80, record_every=80)
        most = max(1.2 * needed, first or 0.0)
        assert max(state.L for state in states) <= (1 + 1e-3) * most
        # Not because it was never asked to.
        assert share != 1e-3 or max(state.L for state in states) > 50 * first


@pytest.mark.parametrize("inner", ["shared", "own", "sliding"])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_multipliers_add_up_to_zero_and_come_from_the_laplacian(agreement, inner):
    method = gs.AutoPDS(agreement=agreement, inner=inner)
    check_invariant(method)
    graph = GRAPHS["star"]
    problem = small_problem(2, gs.domains.L2Ball(0.4), 0.1, logistic, graph.m)
    Lap = graph.laplacian.toarray()
    for state in followed(problem, graph, method, 40, record_every=40)[0]:
        for dual in (state.dual, state.dual_bar):
            np.testing.assert_allclose(dual.w, Lap @ dual.s, atol=1e-11 * (1 + np.abs(Lap @ dual.s).max()))


def opened(problem, network, method):
    """The context of a run, and its first state."""
    kept = []

    class Spy(type(method)):
        def init(self, context):
            kept.append((context, super().init(context)))
            return kept[0][1]

    gs.solve(problem, network, Spy(**vars(method)), stop=gs.Stop(iterations=1))
    return kept[0]


@pytest.mark.parametrize("name", UNLIKE)
@pytest.mark.parametrize("graph", [gs.Graph.ring(7), gs.Graph.star(7)], ids=["ring", "star"])
def test_one_step_with_sets_of_their_own_keeps_its_inequality(graph, name):
    """<y, v - x'> + r(v) - r(x') + <w', v> - <w+, x'> <= p/2 (|x - x'|_D^2 - |x+ - x'|_D^2 - |v - x|_D^2)
    + (|w' - w|^2 - |w' - w+|^2)_{M^+}/(2 p), M = D (I - mix), for all x' in X and w' that add up to zero."""
    problem = small_problem(0, UNLIKE[name])
    context, first = opened(problem, graph, gs.AutoPDS(inner="own"))
    plan, net = plan_for(context, None), Net(graph)
    rng = np.random.default_rng(0)
    tightest = math.inf

    def centred(scale):
        w = scale * rng.normal(size=(7, 3))
        return w - w.mean(axis=0)

    for trial in range(60):
        K, p = 1 + trial % 6, float(np.exp(rng.normal()))
        M = net.D * (np.eye(7) - net.mix(np.eye(7), K))
        inverse = np.linalg.pinv((M + M.T) / 2, rcond=1e-10)
        scale = 10.0 ** rng.integers(-2, 2)
        x, other = (problem.domain.project(scale * rng.normal(size=(7, 3))) for _ in range(2))
        y, w, w_other = scale * rng.normal(size=(7, 3)), centred(scale), centred(scale)
        memory = dataclasses.replace(first.memory, K=K)
        state = dataclasses.replace(first, x=x, dual=Dual(np.zeros((7, 3)), w), memory=memory)
        moved = Own().move(context, plan, state, Weights(1.0, 2.0, p), y)
        v, r = moved.last, problem.domain.r
        left = np.sum(y * (v - other)) + np.sum(r(v) - r(other)) + np.sum(w_other * v) - np.sum(moved.dual.w * other)
        squares = [float(np.sum(net.D * a * a)) for a in (x - other, moved.x - other, v - x)]
        duals = [float(np.sum(a * (inverse @ a))) for a in (w_other - w, w_other - moved.dual.w)]
        terms = [p / 2 * squares[0], duals[0] / (2 * p)]
        right = p / 2 * (squares[0] - squares[1] - squares[2]) + (duals[0] - duals[1]) / (2 * p)
        assert left <= right + 1e-9 * (1 + sum(terms)), trial
        tightest = min(tightest, (right - left) / sum(terms))
        np.testing.assert_allclose(v, problem.domain.project(v), atol=1e-12)
    # A hundredth more on the left would often be too much.
    assert tightest < 0.01


# Where it ends


def solved(problem, network, method, optimum, *, tolerance=1e-6, apart=1e-5, iterations=3000, **options):
    stop = gs.Stop(objective=gs.Relative(tolerance, to=optimum), disagreement=gs.Relative(apart), iterations=iterations)
    solution = gs.solve(problem, network, method, stop=stop, record_every=5, **options)
    assert solution.status is gs.Status.CONVERGED, (method, solution.status)
    return solution


@pytest.mark.parametrize("seed", [3, 4, 5, 9, 10, 16, 18, 21, 22, 25, 26, 28, 33])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_it_finds_the_optimum(agreement, seed):
    """All losses, sets, penalties, centres, ridges, entropy too, on all kinds of graphs."""
    case = random_case(seed, mu=0.1 * (seed % 2))
    solved(case.problem, case.graph, gs.AutoPDS(agreement=agreement), case.reference.objective)


@pytest.mark.parametrize(("agreement", "iterations"), [("exact", 350), ("late", 350), ("none", 1100)])
def test_agents_with_sets_of_their_own_end_at_the_optimum_over_all_of_them(agreement, iterations):
    check_unlike_domains(gs.AutoPDS(agreement=agreement), iterations)


@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("inner", ["own", "sliding"])
def test_any_inner_loop_may_be_asked_for(inner, agreement):
    problem = small_problem(6, gs.domains.L2Ball(0.5), 0.05)
    method = gs.AutoPDS(agreement=agreement, inner=inner)
    solution = solved(problem, gs.Graph.random(7, 3, seed=2), method, reference(problem).objective)
    assert solution.output == "best"
    assert set(solution.outputs) == {"best", "average", "last"}
    assert solution.parameters["R"] > 0


@pytest.mark.parametrize("agreement", ["exact", "late"])
def test_the_curvature_that_rounding_hides_is_not_taken_for_one(agreement):
    """Sets of their own, far past the accuracy that doubles allow."""
    problem = small_problem(5, BOXES, 0.1)
    method, graph = gs.AutoPDS(agreement=agreement), gs.Graph.random(7, 3, seed=2)
    states, solution = followed(problem, graph, method, 500, record_every=500)
    needed = float(np.max(problem.smoothness())) + problem.mu
    R = max(state.memory.R for state in states)
    assert max(max(state.L, state.P) for state in states) <= 1.25 * R * needed
    assert np.abs(states[-1].dual.w.sum(axis=0)).max() < 1e-12
    assert solution.warnings == ()
    # One gradient per iteration and the probe: nothing is done again for what rounding does to a test.
    assert solution.costs.gradients <= 515


def test_a_sum_that_fits_exactly_is_followed_to_the_last_digit():
    """f* = 0: a tolerance relative to f says nothing there."""
    rng = np.random.default_rng(0)
    features, x = rng.normal(size=(24, 3)), rng.normal(size=3)
    problem = gs.Problem(gs.losses.LeastSquares(features, features @ x, agents=8))
    for agreement in ("exact", "late"):
        method = gs.AutoPDS(agreement=agreement)
        solution = gs.solve(problem, gs.Graph.ring(8), method, stop=gs.Stop(iterations=400), record_every=400)
        assert np.abs(solution.x - x).max() < 1e-8
        assert solution.costs.gradients < 500


def ridge_problem(m, condition=1e4):
    """Least squares whose sum has this condition number, nearly."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(10 * m, 12)) * np.geomspace(1, 1e-3, 12), rng.normal(size=10 * m)
    largest = float(np.linalg.eigvalsh(features.T @ features)[-1])
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=m), mu=largest / condition / m)
    values = np.linalg.eigvalsh(features.T @ features + m * problem.mu * np.eye(12))
    assert values[-1] / values[0] > 0.95 * condition
    return problem


@pytest.mark.parametrize(
    ("agreement", "graph", "iterations"),
    [
        ("exact", gs.Graph.ring(8), 1500),
        ("exact", gs.Graph.star(9), 1500),
        ("late", gs.Graph.star(9), 3000),
    ],
    ids=["exact ring", "exact star", "late star"],
)
def test_a_ridge_problem_of_condition_10000_is_solved(agreement, graph, iterations):
    problem = ridge_problem(graph.m)
    method, optimum = gs.AutoPDS(agreement=agreement), reference(problem).objective
    solved(problem, graph, method, optimum, apart=1e-6, iterations=iterations)


@pytest.mark.parametrize("mu", [1e2, 1e5])
def test_a_ridge_far_above_the_losses_is_seen_at_once(mu):
    problem, graph = small_problem(3, None, mu), gs.Graph.ring(7)
    states, _ = followed(problem, graph, gs.AutoPDS(agreement="late"), 60, record_every=60)
    length = np.linalg.norm(reference(problem).x)
    assert all(np.linalg.norm(state.x_bar, axis=1).max() < 10 * length for state in states)
    assert states[0].L >= 0.9 * mu


@pytest.mark.parametrize("name", ["complete", "ring", "star"])
@pytest.mark.parametrize("make_loss", [logistic, least_squares], ids=lambda make: make.__name__)
def test_a_wrong_first_guess_costs_few_gradients(make_loss, name):
    """With exchanges enough, so that only L is at stake; to 1e-4 and to 1e-6."""
    graph = {"complete": gs.Graph.complete(8), "ring": gs.Graph.ring(8), "star": gs.Graph.star(9)}[name]
    problem = small_problem(1, None, 0.05, make_loss, graph.m, 4)
    L, optimum = float(np.max(problem.smoothness())) + problem.mu, reference(problem).objective
    for tolerance in (1e-4, 1e-6):

        def gradients(share, tolerance=tolerance):
            method = gs.AutoPDS(agreement="exact", K=6, first_L=share * L)
            stop = gs.Stop(objective=gs.Relative(tolerance, to=optimum), disagreement=gs.Relative(tolerance))
            return gs.solve(problem, graph, method, stop=stop).costs.gradients

        right = gradients(1.0)
        for share in (1e-3, 1e-2, 1e-1, 1e1, 1e2, 1e3):
            assert gradients(share) <= right + 20, (share, tolerance)


@pytest.mark.parametrize("share", [1e-3, 1e-1, 1e1, 1e3])
@pytest.mark.parametrize("domain", [None, BALL, BOXES], ids=["free", "ball", "boxes"])
def test_a_wrong_first_guess_is_survived_where_sums_come_late(domain, share):
    problem = small_problem(1, domain, 0.05)
    L = share * (float(np.max(problem.smoothness())) + problem.mu)
    graph = gs.Graph.random(7, 3, seed=2)
    same = small_problem(1, COMMON_BOX if domain is BOXES else domain, 0.05)
    solved(problem, graph, gs.AutoPDS(first_L=L), reference(same).objective, iterations=1500)


# What may be fixed, and what it costs


@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize(("domain", "inner"), [(None, "shared"), (BALL, "shared"), (BOXES, "own")])
def test_what_is_given_is_kept(domain, inner, agreement):
    problem, graph = small_problem(2, domain, 0.05), gs.Graph.ring(7)
    L = float(np.max(problem.smoothness())) + problem.mu
    rounds = Net(graph).tree
    start = Net(graph).diameter
    method = gs.AutoPDS(agreement=agreement, L=L, K=3)
    states, solution = followed(problem, graph, method, 80)
    assert all((state.L, state.memory.K) == (L, 3) for state in states)
    assert states[-1].epoch > 0
    parameters = solution.parameters
    assert (parameters["L"], parameters["K"], parameters["restarts"]) == (L, 3, states[-1].epoch)
    # No probe for L, and nothing done again; only the graph has to be learned.
    assert [r.gradients for r in solution.history] == list(range(1, 81))
    assert [r.rounds for r in solution.history[:-1]] == [3 * k for k in range(1, 80)]
    at_once = rounds if agreement == "exact" else 0
    assert [r.control_rounds for r in solution.history] == [start + at_once * k for k in range(1, 81)]


@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize(("domain", "inner"), [(None, "shared"), (BOXES, "own"), (BALL, "sliding")])
def test_restarts_can_be_switched_off(domain, inner, agreement):
    problem, graph = small_problem(2, domain, 0.05), gs.Graph.ring(7)
    for restarts in (True, False):
        method = gs.AutoPDS(agreement=agreement, inner=inner, restarts=restarts)
        states, solution = followed(problem, graph, method, 80, record_every=80)
        assert (states[-1].epoch > 0) == restarts
        assert solution.parameters["restarts"] == states[-1].epoch
        assert restarts or states[-1].k == 80


def test_a_given_spectrum_is_taken_and_the_graph_not_asked_for():
    problem, graph = small_problem(2, None, 0.05), gs.Graph.ring(7)
    values = np.linalg.eigvalsh(graph.laplacian.toarray())
    net = Net(graph)
    method = gs.AutoPDS(agreement="exact")
    given = gs.AutoPDS(agreement="exact", spectrum=(values[1], values[-1]))
    (states, asked), (states_given, told) = (followed(problem, graph, each, 30) for each in (method, given))
    np.testing.assert_allclose(states_given[-1].x_bar, states[-1].x_bar, rtol=1e-7)
    assert asked.costs.control_rounds - told.costs.control_rounds == net.diameter
    # Another spectrum means other numbers of exchanges.
    wide = followed(problem, graph, gs.AutoPDS(spectrum=(values[1] / 16, values[-1])), 3)[0]
    assert wide[0].memory.K == math.ceil(4 * net.reach / 3)
    # On a star all agents then weigh the same.
    star = gs.Graph.star(9)
    context, _ = opened(small_problem(m=9), star, gs.AutoPDS(spectrum=(1.0, 9.0)))
    assert np.all(plan_for(context, (1.0, 9.0)).D == 1)
    assert np.ptp(plan_for(context, None).D) > 0.3


def test_R_is_kept_where_it_is_given_and_found_where_not():
    problem, graph = small_problem(3, gs.domains.EntropySimplex(), 0.05), gs.Graph.ring(7)
    kept = followed(problem, graph, gs.AutoPDS(R=0.7), 150, record_every=150)[0]
    assert {state.memory.R for state in kept} == {0.7}
    assert kept[-1].epoch > 0
    found = [state.memory.R for state in followed(problem, graph, gs.AutoPDS(), 150, record_every=150)[0]]
    assert len(set(found)) > 1
    for before, after in itertools.pairwise(found):
        assert 0.5 * before <= after <= 2 * before


@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_sliding_does_not_spend_ever_more_exchanges_on_a_gradient(agreement):
    """With a ridge they grow geometrically within an epoch, which must end in time."""
    problem = small_problem(5, gs.domains.EntropySimplex(), 0.1)
    states, _ = followed(problem, gs.Graph.random(7, 3, seed=2), gs.AutoPDS(agreement=agreement), 130, record_every=130)
    assert 10 < max(state.T_before for state in states) < 1000


def test_sliding_needs_no_graph_and_weighs_all_agents_alike():
    """Its steps know no weights, so its test must not: and where all is given there is nothing to agree on."""
    problem, graph = small_problem(5, gs.domains.EntropySimplex(), 0.1, logistic, 9), gs.Graph.star(9)
    given = gs.AutoPDS(L=5.0, R=0.5)
    assert gs.solve(problem, graph, given, stop=gs.Stop(iterations=3)).costs.control_rounds == 0
    network = gs.network.Local(graph, exact_norm=False)
    assert gs.solve(problem, network, given, stop=gs.Stop(iterations=3)).costs.control_rounds == network.norm_rounds
    states, _ = followed(problem, graph, gs.AutoPDS(agreement="exact"), 30, record_every=30)
    firsts = [state for state in states if state.k == 1]
    assert firsts
    for state in firsts:
        d = state.x_bar - state.x_under
        gaps = problem.loss.value(state.x_bar) - problem.loss.value(state.x_under) - np.sum(state.y * d, axis=1)
        assert gaps.sum() <= state.P / 2 * np.sum(np.sum(np.abs(d), axis=1) ** 2) + 1e-12


def expected_floats(graph, solution, d, posted):
    links = 2 * len(graph.edges)
    return solution.costs.rounds * links * d + links**2 + posted


@pytest.mark.parametrize("name", ["ring", "star", "random"])
def test_all_that_it_costs_is_counted(name):
    graph, net = GRAPHS[name], Net(GRAPHS[name])
    problem = hard_problem(None, logistic, graph.m)
    final = math.ceil(2 * net.reach)
    for agreement, start, posted in (
        ("exact", 2 * net.diameter + net.tree, 0),
        ("late", 2 * net.diameter + net.tree, 40 * 2 * (graph.m - 1) * 9),
        ("none", 3 * net.diameter, 40 * net.diameter * 2 * len(graph.edges)),
    ):
        twins = list(RULES[agreement](problem, graph, "free", 40))
        costs = (solution := followed(problem, graph, gs.AutoPDS(agreement=agreement), 40)[1]).costs
        attempts = (costs.control_rounds - start) // net.tree if agreement == "exact" else 40
        assert attempts >= 40
        assert costs.control_rounds == start + (attempts * net.tree if agreement == "exact" else 0)
        assert costs.rounds == twins[-1].rounds + final
        assert costs.gradients == twins[-1].gradients
        # With every gradient but the probe's there comes a value, and one at every average.
        assert costs.values == costs.gradients - 1 + attempts
        assert costs.floats_sent == expected_floats(graph, solution, 6, posted)
        assert (costs.samples, costs.operator_products) == (0, 0)


def test_more_balance_means_fewer_gradients_and_more_rounds():
    problem, graph = hard_problem(None, logistic, 16), gs.Graph.ring(16)
    optimum = reference(problem).objective
    for agreement in ("exact", "late"):
        spent = [
            solved(
                problem, graph, gs.AutoPDS(agreement=agreement, balance=balance), optimum, tolerance=1e-5, apart=1e-3
            ).costs
            for balance in (0.1, 10.0, 100.0)
        ]
        assert spent[0].gradients > 1.3 * spent[1].gradients > 1.5 * spent[2].gradients
        assert spent[0].rounds < spent[1].rounds < spent[2].rounds


@pytest.mark.parametrize("ratio", [64.0, 0.125])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_a_measured_balance_is_that_of_the_clock_and_part_of_a_checkpoint(agreement, ratio, tmp_path):
    problem, graph, net = hard_problem(None, logistic, 12), GRAPHS["ring"], Net(GRAPHS["ring"])
    method = gs.AutoPDS(agreement=agreement, balance="measure")
    # Powers of 2, which add up without rounding.
    clock = gs.Clock(gradient=ratio / 1024, latency=1 / 1024)
    states, whole = followed(problem, graph, method, 20, clock=clock)
    first = next(n for n, state in enumerate(states) if state.memory.is_measured)
    assert [state.memory.balance for state in states] == [1.0] * first + [ratio] * (20 - first)
    assert 2 <= first <= 3
    assert whole.parameters["balance"] == ratio
    K = math.ceil(max(net.reach / 3, math.sqrt(0.35 * ratio * net.reach)))
    assert [state.memory.K for state in states[: first + 1]] == [net.K] * first + [max(net.K, K)]
    assert (K > net.K) == (ratio > 1)
    fixed = gs.solve(problem, graph, gs.AutoPDS(agreement=agreement), stop=gs.Stop(iterations=5), clock=clock)
    spent = [whole.history[k].control_rounds - fixed.history[k].control_rounds for k in (first - 1, first)]
    assert agreement != "none" or spent == [0, net.tree]
    for iterations in (2, 3, 9, 20):
        stop = gs.Stop(iterations=iterations)
        part = gs.solve(problem, graph, method, stop=stop, clock=clock, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(part.x, whole.x)
    assert part.parameters == whole.parameters
    assert part.costs.simulated_seconds == whole.costs.simulated_seconds


# How it goes on


@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize(
    ("domain", "inner"),
    [(None, "shared"), (BALL, "shared"), (BOXES, "own"), (gs.domains.EntropySimplex(), "sliding"), (None, "sliding")],
)
def test_a_run_goes_on_from_a_checkpoint_to_the_bit(domain, inner, agreement, tmp_path):
    problem, graph = small_problem(1, domain, 0.05), gs.Graph.ring(7)
    method = gs.AutoPDS(agreement=agreement, inner=inner)
    states, whole = followed(problem, graph, method, 45)
    # Sums are on their way where runs end: six exchanges take them everywhere.
    assert agreement != "late" or all(states[k - 1].memory.posted for k in (1, 9, 10, 32) if inner != "sliding")
    for iterations in (1, 9, 10, 32, 45):
        stop = gs.Stop(iterations=iterations)
        part = gs.solve(problem, graph, method, stop=stop, checkpoint=tmp_path / "run.npz")
    for name, x in whole.outputs.items():
        np.testing.assert_array_equal(part.outputs[name], x)
    np.testing.assert_array_equal(part.dual, whole.dual)
    assert dataclasses.replace(part.costs, seconds=0.0) == dataclasses.replace(whole.costs, seconds=0.0)
    assert part.parameters == whole.parameters
    assert [r.control_rounds for r in part.history] == [r.control_rounds for r in whole.history]


def test_going_back_survives_a_checkpoint(tmp_path):
    """The points to go back to are part of it."""
    problem, graph = hard_problem(None, logistic, 12), GRAPHS["ring"]
    L = 1e-3 * float(np.max(problem.smoothness()))
    method = gs.AutoPDS(first_L=L)
    states, whole = followed(problem, graph, method, 20)
    first = next(n for n, state in enumerate(states) if state.epoch == 1)
    assert np.linalg.norm(states[first].x_bar) < 0.1 * np.linalg.norm(states[first - 1].x_bar)
    for iterations in (first - 1, first, 20):
        stop = gs.Stop(iterations=iterations)
        part = gs.solve(problem, graph, method, stop=stop, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(part.x, whole.x)


@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize(
    ("domain", "inner"), [(None, "shared"), (BALL, "shared"), (BOXES, "own"), (gs.domains.EntropySimplex(), "sliding")]
)
def test_single_precision_stays(domain, inner, agreement):
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(21, 3)).astype(np.float32), rng.normal(size=21).astype(np.float32)
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=7), domain, 0.1)
    values = np.linalg.eigvalsh(gs.Graph.star(7).laplacian.toarray())
    for given in (
        {},
        {"L": np.float64(9.0), "K": np.int64(2), "balance": np.float64(2.0)},
        {"spectrum": values[[1, 6]]},
    ):
        if "spectrum" in given:
            given = {"spectrum": tuple(given["spectrum"])}
        method = gs.AutoPDS(agreement=agreement, **given)
        states, solution = followed(problem, gs.Graph.star(7), method, 25, record_every=25)
        for state in states:
            for name in ("x", "x_bar", "last", "x_under", "y", "y_bar", "gap_bar", "x_before"):
                assert getattr(state, name).dtype == np.float32, name
            assert state.dual.w.dtype == state.dual_bar.w.dtype == np.float32
            assert all(type(number) is float for number in (state.L, state.P, state.S, state.slack))
        assert solution.x.dtype == solution.dual.dtype == np.float32
    double = gs.Problem(gs.losses.LeastSquares(features.astype(float), targets.astype(float), agents=7), domain, 0.1)
    if agreement != "none":
        method = gs.AutoPDS(agreement=agreement)
        last = gs.solve(problem, gs.Graph.star(7), method, stop=gs.Stop(iterations=150), record_every=150).history[-1]
        optimum = reference(double if domain is not BOXES else gs.Problem(double.loss, COMMON_BOX, 0.1))
        assert last.objective == pytest.approx(optimum.objective, rel=1e-4)


def test_a_step_from_a_copy_of_a_state_is_the_same_step():
    for domain in (None, BALL, BOXES, gs.domains.EntropySimplex()):
        problem = small_problem(0, domain, 0.1)
        for first, again in stepped_twice(problem, gs.Graph.ring(7), gs.AutoPDS(agreement="exact"), 20):
            np.testing.assert_array_equal(first.x_bar, again.x_bar)
            np.testing.assert_array_equal(first.dual.w, again.dual.w)
            assert (first.L, first.memory.K, first.total) == (again.L, again.memory.K, again.total)


@pytest.mark.parametrize(("domain", "inner"), [(None, "shared"), (BALL, "shared"), (None, "own"), (BALL, "sliding")])
def test_multipliers_of_an_earlier_solution_are_worth_having(domain, inner):
    problem, graph = small_problem(3, domain, 0.3), gs.Graph.random(7, 3, seed=2)
    check_warm_start(problem, graph, gs.AutoPDS(agreement="exact", inner=inner), 500)


@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("domain", [None, BALL, BOXES], ids=["free", "ball", "boxes"])
def test_it_starts_anywhere(domain, agreement):
    problem, graph = small_problem(1, domain, 0.1), gs.Graph.random(7, 3, seed=2)
    same = small_problem(1, COMMON_BOX if domain is BOXES else domain, 0.1)
    optimum = reference(same).objective
    for x0 in (own_starts(problem), problem.domain.project(np.full((7, 3), 2.0))):
        solved(problem, graph, gs.AutoPDS(agreement=agreement), optimum, apart=1e-4, x0=x0)
    states, _ = followed(problem, graph, gs.AutoPDS(agreement=agreement, L=1e9), 1, x0=own_starts(problem))
    np.testing.assert_allclose(states[0].x_under, own_starts(problem))


@pytest.mark.parametrize("inner", [None, "own", "sliding"])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_one_agent_or_two(agreement, inner):
    method = gs.AutoPDS(agreement=agreement, inner=inner)
    check_lone_agent(method)
    check_lone_agent(method, domain=gs.domains.L2Ball(0.2))
    problem = small_problem(4, None, 0.1, least_squares, 2)
    solved(problem, gs.Graph.path(2), method, reference(problem).objective)


@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("domain", [None, BALL, BOXES, gs.domains.EntropySimplex()])
def test_a_loss_without_values_will_do(domain, agreement):
    """Curvature and Lagrangian then follow from gradients."""
    known = small_problem(5, domain, 0.1, logistic)
    loss = gs.losses.Custom(gradient=known.loss.gradient, agents=7, dimension=3)
    problem, graph = gs.Problem(loss, domain, 0.1), gs.Graph.random(7, 3, seed=2)
    method = gs.AutoPDS(agreement=agreement)
    iterations = 200 if domain is not None and domain.norm == 1 else 600 if agreement == "none" else 300
    states, solution = followed(problem, graph, method, iterations, record_every=iterations)
    optimum = reference(small_problem(5, COMMON_BOX if domain is BOXES else domain, 0.1, logistic))
    assert np.abs(solution.x - optimum.x).max() < 1e-4
    assert solution.costs.values == 0
    assert solution.costs.gradients == iterations + 1
    assert max(state.L for state in states) < 5 * (float(np.max(known.smoothness())) + 0.1)


@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_nothing_moves_where_all_gradients_are_zero(agreement):
    for domain in (None, BALL, BOXES):
        problem = gs.Problem(gs.losses.Quadratic(np.tile(np.eye(3), (7, 1, 1)), np.zeros((7, 3))), domain)
        solution = gs.solve(problem, gs.Graph.ring(7), gs.AutoPDS(agreement=agreement), stop=gs.Stop(iterations=60))
        assert np.all(solution.x == 0)
        assert solution.parameters["L"] == 1.0
        # Nothing to find L from: no second gradient.
        assert solution.costs.gradients == 60


@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_linear_losses_over_a_ball(agreement):
    c = np.random.default_rng(2).normal(size=(7, 3))
    answer = -0.4 * c.sum(axis=0) / np.linalg.norm(c.sum(axis=0))
    for domain in (
        gs.domains.L2Ball(0.4),
        gs.domains.PerAgent([gs.domains.L2Ball(0.4)] * 6 + [gs.domains.L2Ball(0.5)]),
    ):
        problem = gs.Problem(gs.losses.Linear(c), domain)
        method = gs.AutoPDS(agreement=agreement)
        solution = gs.solve(problem, gs.Graph.ring(7), method, stop=gs.Stop(iterations=600), record_every=600)
        assert np.abs(solution.x - answer).max() < 1e-3
        assert math.isfinite(solution.parameters["L"])


def test_outputs_and_multipliers_go_together():
    problem, graph = small_problem(3, BOXES, 0.1), gs.Graph.ring(7)
    method = gs.AutoPDS(agreement="exact")
    for state in iterates(problem, graph, method, gs.Stop(iterations=40)):
        outputs, duals = method.output(state), method.dual(state)
        assert list(outputs) == list(duals) == ["best", "average", "last"]
        better = "last" if state.memory.last_is_better else "average"
        assert outputs["best"] is outputs[better]
        assert duals["best"] is duals[better]
    shared = iterates(small_problem(3), graph, method, gs.Stop(iterations=1))[0]
    assert list(method.output(shared)) == list(method.dual(shared)) == ["average", "last"]


@pytest.mark.parametrize("name", ["ring", "star"])
@pytest.mark.parametrize("kind", ["free", "ball"])
def test_the_answers_are_mixed_at_the_end_and_stay_in_X(kind, name):
    graph, net = GRAPHS[name], Net(GRAPHS[name])
    problem = hard_problem(KINDS[kind][0], logistic, graph.m)
    if kind == "ball":
        # So small that all are at its boundary, which mixing would cross.
        problem = hard_problem(gs.domains.L2Ball(0.3), logistic, graph.m)
    states, solution = followed(problem, graph, gs.AutoPDS(), 6 if kind == "ball" else 20)
    mean = np.sum(net.D * states[-1].x_bar, axis=0) / net.D.sum()
    if kind == "free":
        np.testing.assert_allclose(np.sum(net.D * solution.x, axis=0) / net.D.sum(), mean, rtol=1e-10)
    apart = [np.linalg.norm(x - x.mean(axis=0)) for x in (states[-1].x_bar, solution.x)]
    assert apart[1] < 0.1 * apart[0]
    assert kind == "free" or np.linalg.norm(solution.x, axis=1).max() <= 0.3 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"balance": 0.0}, ["balance must be > 0", "measure"]),
        ({"balance": math.nan}, ["balance"]),
        ({"balance": "measured"}, ["balance", "'measured'", '"measure"']),
        ({"agreement": "exactly"}, ["agreement", "did you mean 'exact'?"]),
        ({"inner": "slide"}, ["inner", "did you mean 'sliding'?"]),
        ({"L": 0.0}, ["L must be > 0"]),
        ({"first_L": -1.0}, ["first_L must be > 0"]),
        ({"R": math.inf}, ["R must be > 0"]),
        ({"L": 1.0, "first_L": 1.0}, ["give L", "first_L", "both"]),
        ({"K": 0}, ["K must be a whole number >= 1"]),
        ({"K": 1.5}, ["K must be a whole number"]),
        ({"spectrum": (0.0, 1.0)}, ["spectrum[0] must be > 0", "smallest eigenvalue"]),
        ({"spectrum": (2.0, 1.0)}, ["spectrum[1] must be >= 2", "largest eigenvalue"]),
    ],
)
def test_wrong_parameters_are_refused(given, words):
    check_message(lambda: gs.AutoPDS(**given), words)


def test_inner_loops_that_do_not_fit_are_refused():
    graph = gs.Graph.ring(7)
    unlike, entropy = small_problem(domain=BOXES), small_problem(domain=gs.domains.EntropySimplex())
    check_message(lambda: gs.solve(unlike, graph, gs.AutoPDS(inner="shared")), ["the same X and penalty", "AutoPDS"])
    for inner in ("shared", "own"):
        check_message(lambda inner=inner: gs.solve(entropy, graph, gs.AutoPDS(inner=inner)), ["Euclidean"])
    with pytest.raises(TypeError):
        gs.AutoPDS(1.0)
