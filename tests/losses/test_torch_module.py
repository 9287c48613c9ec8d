"""Losses of PyTorch modules: what the built-in losses give on the same data, in the form that users of PyTorch have."""

import re
from pathlib import Path

import numpy as np
import pytest
from autodiff_cases import (
    K,
    P,
    assert_newton_agrees,
    assert_same_hessians,
    assert_same_samples,
    assert_same_values,
    built_in,
    data,
    identified,
)

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.oracles import Stream

torch = pytest.importorskip("torch", reason="needs PyTorch: install gradslide[torch]")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

# PyTorch says so itself where a gradient is the first thing that a process asks of a GPU.
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")

PAGE = Path(__file__).parents[2] / "docs" / "autodiff.md"
EQUAL, RAGGED = [6] * 5, [7, 1, 12, 7, 3]

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch can use")
on_devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=no_gpu)])


class Squares(nn.Module):
    """As LeastSquares has it: half a square per row, added up."""

    def forward(self, predictions, targets):
        return ((predictions[:, 0] - targets) ** 2).sum() / 2


def model(kind, dtype=torch.float64):
    torch.manual_seed(1)
    return nn.Linear(P, K if kind == "softmax" else 1, bias=False).to(dtype)


def pairs(kind, sizes):
    """One (inputs, targets) per agent, in the shapes that the losses of PyTorch take."""
    features, targets, splits = data(kind, sizes)
    shaped = targets[:, None] if kind == "logistic" else targets
    return [(torch.tensor(features[rows]), torch.tensor(shaped[rows])) for rows in splits]


LOSSES = {"logistic": nn.BCEWithLogitsLoss, "squares": Squares, "softmax": nn.CrossEntropyLoss}


def wrapped(kind="logistic", sizes=RAGGED, *, loss=None, module=None, **more):
    return gs.losses.Torch(module or model(kind), loss or LOSSES[kind](), pairs(kind, sizes), **more)


def points(loss, seed=2):
    return np.random.default_rng(seed).normal(size=(loss.m, loss.d)).astype(loss.dtype)


def close(found, expected, tolerance=1e-10):
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("sizes", [EQUAL, RAGGED])
@pytest.mark.parametrize("kind", LOSSES)
def test_values_and_gradients_are_those_of_the_built_in_loss(kind, sizes, reduction):
    loss, expected = wrapped(kind, sizes, reduction=reduction), built_in(kind, sizes, reduction=reduction)
    assert (loss.m, loss.d, loss.dtype, loss.device) == (expected.m, expected.d, np.float64, None)
    x = points(loss)
    assert_same_values(loss, expected, x, close)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("kind", LOSSES)
def test_samples_are_those_of_the_built_in_loss(kind, reduction):
    loss, expected = wrapped(kind, reduction=reduction), built_in(kind, RAGGED, reduction=reduction)
    x = points(loss)
    assert loss.rows_per_agent.tolist() == RAGGED
    assert_same_samples(loss, expected, x, close, batches=(1, 5, 40), drawn=9)


def test_samples_may_come_from_a_stream():
    loss, expected = wrapped("softmax"), built_in("softmax", RAGGED)
    features, targets, _ = data("softmax", [6] * 5)
    arrived = [[(features[i : i + 1], targets[i : i + 1]), (features[i : i + 4], targets[i : i + 4])] for i in range(5)]
    ours, theirs = (Stream(arrived).open(one, range(5), 0) for one in (loss, expected))
    x = points(loss)
    close(ours.gradient(x, ours.draw(0, 3)), theirs.gradient(x, theirs.draw(0, 3)))
    with pytest.raises(InputError, match=r"inputs of a batch must have the shape .* \(4,\) per row; got \(3,\)"):
        loss.read_samples(0, (features[:2, :3], targets[:2]))


@pytest.mark.parametrize("sizes", [EQUAL, RAGGED])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_it_does_not_matter_how_the_loss_puts_rows_together(reduction, sizes):
    expected = built_in("logistic", sizes)
    loss = wrapped(loss=nn.BCEWithLogitsLoss(reduction=reduction), sizes=sizes)
    x = points(loss)
    close(loss.gradient(x), expected.gradient(x))
    streams = [np.random.default_rng(3).spawn(loss.m) for _ in range(2)]
    close(loss.sample_gradient(x, 9, streams[0]), expected.sample_gradient(x, 9, streams[1]))


def in_fives(dataset):
    for first in range(0, len(dataset), 5):
        yield dataset[first : first + 5]


@pytest.mark.parametrize("form", ["loader", "shuffled", "dataset", "generator", "list of batches"])
def test_loaders_of_any_kind_with_uneven_batches_give_the_same(form):
    datasets = [TensorDataset(*pair) for pair in pairs("logistic", RAGGED)]
    loaders = {
        "loader": [DataLoader(own, batch_size=4) for own in datasets],
        "shuffled": [DataLoader(own, batch_size=4, shuffle=True) for own in datasets],
        "dataset": datasets,
        "generator": [in_fives(own) for own in datasets],
        "list of batches": [[own[:1], own[1:]] if len(own) > 1 else [own[:]] for own in datasets],
    }
    module = model("logistic")
    torch.manual_seed(5)
    expected_next = torch.rand(1)
    torch.manual_seed(5)
    loss = gs.losses.Torch(module, nn.BCEWithLogitsLoss(), loaders[form])
    assert torch.equal(torch.rand(1), expected_next), "the user's random numbers are as before"
    expected, x = built_in("logistic", RAGGED), points(loss)
    close(loss.gradient(x), expected.gradient(x))
    rows = [[0, n - 1] for n in RAGGED]
    close(loss.gradient_of_rows(x, rows), expected.gradient_of_rows(x, rows))


def test_rows_at_once_change_nothing_but_rounding():
    for sizes in (EQUAL, RAGGED):
        x = points(wrapped(sizes=sizes))
        for count in (1, 4, 13):
            few = wrapped(sizes=sizes, rows_at_once=count)
            for found, expected in zip(
                few.value_and_gradient(x), wrapped(sizes=sizes).value_and_gradient(x), strict=True
            ):
                close(found, expected)


class Stubborn(nn.Linear):
    """Looks at numbers, which torch.vmap does not allow."""

    def forward(self, inputs):
        scale = inputs.abs().max().item()
        return scale * super().forward(inputs / scale)


def test_modules_that_cannot_be_vectorized_are_evaluated_agent_by_agent():
    loss = wrapped(module=Stubborn(P, 1, bias=False).double(), sizes=EQUAL)
    assert not loss._vectorized
    assert wrapped(sizes=EQUAL)._vectorized
    close(loss.gradient(points(loss)), built_in("logistic", EQUAL).gradient(points(loss)))


def test_take_restricts_it_to_some_agents():
    loss = wrapped("softmax", smoothness=[1.0, 2.0, 3.0, 4.0, 5.0])
    x = points(loss)
    for agents in ([2], [3, 0], [1, 2, 3]):
        part = loss.take(agents)
        close(part.gradient(x[agents]), loss.gradient(x)[agents])
        assert part.rows_per_agent.tolist() == [RAGGED[i] for i in agents]
        assert part.smoothness().tolist() == [1.0 + i for i in agents]
        rows = [[0]] * len(agents)
        close(part.gradient_of_rows(x[agents], rows), loss.gradient_of_rows(x, [[0]] * 5)[agents])
    assert wrapped().take([4]).rows_per_agent.tolist() == [3]


def test_the_parameters_are_the_variable_in_their_order_and_the_module_stays_as_it_is():
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(P, 2), nn.Dropout(0.5), nn.Linear(2, 1)).double()
    module[0].requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    loss = gs.losses.Torch(module, nn.BCEWithLogitsLoss(), pairs("logistic", RAGGED))
    assert loss.d == 3
    np.testing.assert_array_equal(loss.x0, [*module[2].weight[0].tolist(), module[2].bias.item()])
    solution = gs.solve(gs.Problem(loss, mu=0.1), gs.Graph.ring(5), x0=loss.x0, stop=gs.Stop(iterations=5))
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    # Nor does what happens to the module later change the loss.
    value = loss.value(np.tile(solution.mean, (5, 1)))
    loss.load_into(module, solution.mean)
    np.testing.assert_array_equal([*module[2].weight[0].tolist(), module[2].bias.item()], solution.mean)
    assert torch.equal(module[0].weight, before["0.weight"])
    nn.init.zeros_(module[0].weight)
    close(loss.value(np.tile(solution.mean, (5, 1))), value)
    module[0].weight.data.copy_(before["0.weight"])
    inputs, targets = (torch.cat(part) for part in zip(*pairs("logistic", RAGGED), strict=True))
    total = nn.BCEWithLogitsLoss(reduction="sum")(module.eval()(inputs), targets)
    assert total.item() == pytest.approx(value.sum(), rel=1e-12)


def test_batch_norm_is_fixed_as_in_evaluation():
    module = nn.Sequential(nn.BatchNorm1d(P, affine=False), nn.Linear(P, 1, bias=False)).double()
    module(torch.tensor(np.random.default_rng(4).normal(3.0, 2.0, size=(50, P))))
    mean, scale = module[0].running_mean.numpy(), np.sqrt(module[0].running_var.numpy() + module[0].eps)
    loss = gs.losses.Torch(module, nn.BCEWithLogitsLoss(), pairs("logistic", RAGGED))
    features, targets, splits = data("logistic", RAGGED)
    expected = gs.losses.Logistic((features - mean) / scale, targets, splits=splits)
    close(loss.gradient(points(loss)), expected.gradient(points(loss)))


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_a_problem_and_a_graph_are_enough_and_give_the_same_answer(kind):
    domain, graph = gs.domains.L2Ball(1.0), gs.Graph.ring(5)
    solution, expected = (gs.solve(gs.Problem(loss, domain), graph) for loss in (wrapped(kind), built_in(kind, RAGGED)))
    assert solution.status is gs.Status.CONVERGED
    # One more before the run, and four at the answer, compare the gradient of a user's function with its value.
    assert solution.costs.gradients == expected.costs.gradients + 5
    assert solution.costs.rounds == expected.costs.rounds
    close(identified(kind, solution.x), identified(kind, expected.x), 1e-8)
    assert solution.certificate.gap == pytest.approx(expected.certificate.gap, rel=1e-4)


def test_without_smoothness_other_methods_say_what_is_missing():
    problem, graph = gs.Problem(wrapped()), gs.Graph.ring(5)
    for method in (gs.PDS(), gs.NIDS(), gs.SPDS(samples=100)):
        with pytest.raises(InputError, match=r"smoothness constant must be known .* Torch without it; use gs\.AutoPDS"):
            gs.solve(problem, graph, method)
    L = float(np.max(built_in("logistic", RAGGED).smoothness()))
    stop = gs.Stop(iterations=20)
    given = gs.solve(gs.Problem(wrapped(smoothness=L)), graph, gs.PDS(), stop=stop)
    assert given.parameters["L"] == L
    close(gs.solve(problem, graph, gs.PDS(L=L), stop=stop).x, given.x)


def test_spds_is_seeded():
    graph, features = gs.Graph.ring(5), []
    for loss in (wrapped(), wrapped(), built_in("logistic", RAGGED)):
        for seed in (1, 2):
            method = gs.SPDS(samples=200, L=5.0, seed=seed)
            features.append(gs.solve(gs.Problem(loss, gs.domains.L2Ball(2.0)), graph, method).x)
    np.testing.assert_array_equal(features[0], features[2])
    close(features[0], features[4])
    close(features[1], features[5])
    assert np.abs(features[0] - features[1]).max() > 1e-3


def test_float32_stays_float32():
    loss = wrapped(module=model("logistic", torch.float32))
    assert (loss.dtype, loss.x0.dtype) == (np.float32, np.float32)
    x = points(loss)
    value, gradient = loss.value_and_gradient(x)
    assert (value.dtype, gradient.dtype) == (np.float32, np.float32)
    expected = built_in("logistic", RAGGED)
    close(gradient, expected.gradient(x.astype(float)), 1e-5)
    solution = gs.solve(gs.Problem(loss), gs.Graph.ring(5), stop=gs.Stop(iterations=5))
    assert solution.x.dtype == np.float32


@on_devices
@pytest.mark.parametrize("sizes", [EQUAL, RAGGED])
def test_on_a_device_it_gives_tensors(device, sizes):
    loss = wrapped(sizes=sizes)
    there = loss.to(device)
    x = points(loss)
    t = torch.tensor(x, device=device)
    value, gradient = there.value_and_gradient(t)
    streams = [np.random.default_rng(3).spawn(loss.m) for _ in range(2)]
    sampled = there.sample_gradient(t, 9, streams[0])
    for found, expected in (
        (value, loss.value(x)),
        (gradient, loss.gradient(x)),
        (sampled, loss.sample_gradient(x, 9, streams[1])),
        (there.take([3, 1]).gradient(t[[3, 1]]), loss.gradient(x)[[3, 1]]),
    ):
        assert (found.device.type, found.dtype, found.requires_grad) == (device, torch.float64, False)
        close(found.cpu().numpy(), expected)
    with pytest.raises(InputError, match="move it"):
        loss.value(t)
    problem, graph = gs.Problem(loss, mu=0.1), gs.Graph.ring(5)
    found = gs.solve(problem, gs.network.Local(graph, device=device))
    # There are no Hessians on a device.
    assert found.parameters["method"] == "LBFGS"
    close(found.x, gs.solve(problem, graph, gs.LBFGS()).x)


@no_gpu
def test_the_loss_of_a_module_on_a_gpu_lives_there():
    loss = wrapped(module=model("logistic").cuda())
    assert loss.device.type == "cuda"
    solution = gs.solve(gs.Problem(loss, mu=0.1), gs.Graph.ring(5))
    close(solution.x, gs.solve(gs.Problem(wrapped(), mu=0.1), gs.Graph.ring(5)).x, 1e-6)


def test_one_loss_per_agent_can_be_built_where_it_lives():
    module, own = model("logistic"), pairs("logistic", RAGGED)
    problem = gs.Problem.build(
        gs.Graph.ring(5), lambda i: gs.losses.Torch(module, nn.BCEWithLogitsLoss(), [own[i]]), mu=0.1
    )
    whole = gs.Problem(wrapped(), mu=0.1)
    close(problem.loss.gradient(points(whole.loss)), whole.loss.gradient(points(whole.loss)))


def test_a_loss_of_all_rows_at_once_cannot_sample():
    def spread(predictions, targets):
        return torch.logsumexp((predictions[:, 0] - targets) ** 2, dim=0)

    with pytest.raises(InputError, match=r"sum or the mean of the losses of each; got .* reduction=None"):
        wrapped("squares", loss=spread)
    loss = wrapped("squares", loss=spread, reduction=None)
    features, targets, splits = data("squares", RAGGED)
    x = points(loss)
    residuals = [(features[rows] @ x[i] - targets[rows]) ** 2 for i, rows in enumerate(splits)]
    close(loss.value(x), [np.log(np.exp(own).sum()) for own in residuals])
    assert loss.rows_per_agent is None
    for call in (
        lambda: loss.sample_gradient(x, 1, np.random.default_rng(0).spawn(5)),
        lambda: loss.gradient_of_rows(x, [[0]] * 5),
        lambda: loss.read_samples(0, (features, targets)),
    ):
        with pytest.raises(InputError, match=r'sampling needs a sum over rows; .* use reduction="sum"'):
            call()
    with pytest.raises(InputError, match="rows_at_once needs a sum over rows"):
        wrapped("squares", loss=spread, reduction=None, rows_at_once=3)


def test_what_is_not_convex_is_refused_unless_asked_for():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(P, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    with pytest.raises(InputError, match=r"must be convex in the parameters; got .* check_convexity=False"):
        wrapped(module=network)
    assert wrapped(module=network, check_convexity=False).d == 19
    with pytest.raises(InputError, match="must be convex"):
        wrapped("squares", loss=lambda z, t: -((z[:, 0] - t) ** 2))


class Noisy(nn.Linear):
    def forward(self, inputs):
        return super().forward(nn.functional.dropout(inputs, training=True))


def test_what_is_random_or_no_sum_over_rows_is_refused():
    with pytest.raises(InputError, match="the same each time"):
        wrapped(module=Noisy(P, 1).double())
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    with pytest.raises(InputError, match=r'CrossEntropyLoss with class weights; give it reduction="sum"'):
        wrapped("softmax", loss=nn.CrossEntropyLoss(weight=weights))
    with pytest.raises(InputError, match="rows with ignore_index"):
        wrapped("softmax", loss=nn.CrossEntropyLoss(ignore_index=1))
    weighted = wrapped("softmax", loss=nn.CrossEntropyLoss(weight=weights, reduction="sum"))
    _, targets, _ = data("softmax", RAGGED)
    expected = built_in("softmax", RAGGED, sample_weight=weights.numpy()[targets])
    close(weighted.gradient(points(weighted)), expected.gradient(points(weighted)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"module": "linear"}, "module must be a torch.nn.Module; got str"),
        ({"module": nn.ReLU()}, "must have parameters that require a gradient"),
        ({"module": nn.Linear(P, 1).half()}, "float32, or all float64, on one device; got float16 on cpu"),
        ({"module": nn.Sequential(nn.Linear(P, 1), nn.Linear(1, 1).double())}, "got float32 on cpu, float64 on cpu"),
        ({"loss": "squares"}, "loss must be callable"),
        ({"loss": lambda z, t: torch.zeros(2, 2)}, "depends on the module's parameters"),
        ({"loss": lambda z, t: (z[:, 0].detach() - t).sum()}, "depends on the module's parameters"),
        ({"loss": lambda z, t: z[:2, 0]}, r"a number, or one number per row; got shape \(2,\) for 4 rows"),
        ({"loss": lambda z, t: (z * float(t.sum())).sum()}, "torch.vmap can take row by row"),
        ({"loaders": TensorDataset(torch.zeros(3, P))}, "loaders must be a list with one loader per agent"),
        ({"loaders": []}, "loaders must be a list"),
        ({"loaders": [3]}, "a loader must be a DataLoader, a Dataset, a pair"),
        ({"loaders": [[]]}, "at least one row; got none for agent 0"),
        ({"loaders": [[(1, 2, 3)]]}, "a batch must be a pair of inputs and targets"),
        ({"loaders": [(torch.zeros(3, P), torch.zeros(2))]}, r"as many inputs as targets; got shapes \(3, 4\) and"),
        ({"loaders": [(torch.zeros(3, P), torch.full((3,), torch.nan))]}, "targets must be finite"),
        (
            {"loaders": [(torch.zeros(3, P), torch.zeros(3)), (torch.zeros(3, 2), torch.zeros(3))]},
            "inputs must have one shape in all rows of all agents",
        ),
        (
            {"loaders": [DataLoader(TensorDataset(torch.zeros(3, P), torch.zeros(3)), batch_size=2, drop_last=True)]},
            "all rows of its agent, each time the same; got drop_last=True",
        ),
        ({"smoothness": -1.0}, "smoothness must be a non-negative number"),
        ({"reduction": "average"}, "reduction must be one of the known names"),
        ({"rows_at_once": 0}, "rows_at_once must be a whole number >= 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_errors_say_what_to_do(change, message):
    given = {"module": model("squares"), "loss": Squares(), "loaders": pairs("squares", EQUAL), **change}
    with pytest.raises(InputError, match=message):
        gs.losses.Torch(**given)


CLASSES, ONES = torch.tensor([0, 1, 2]), torch.tensor([[0.0], [1.0], [1.0]], dtype=torch.float64)
ROWS = torch.arange(3.0 * P, dtype=torch.float64).reshape(3, P)


@pytest.mark.parametrize(
    ("outputs", "loss", "targets", "message"),
    [
        (3, nn.CrossEntropyLoss(), CLASSES.double(), r"int64 and shape \(3,\) for 3 rows; got float64 of shape \(3,\)"),
        (3, nn.CrossEntropyLoss(), CLASSES.int(), r"got int32 of shape \(3,\); convert them, .* targets\.long\(\)"),
        (3, nn.CrossEntropyLoss(), CLASSES[:, None], r"shape \(3,\) for 3 rows; got int64 of shape \(3, 1\)"),
        (3, nn.CrossEntropyLoss(), CLASSES + 1, r"class numbers 0\.\.2, as the module has 3 outputs; got \[3\];"),
        (2, nn.functional.cross_entropy, CLASSES, r"of cross_entropy must be class numbers 0\.\.1"),
        (1, nn.BCEWithLogitsLoss(), ONES[:, 0], r"of the predictions' shape \(3, 1\); got float64 of shape \(3,\);"),
        (1, nn.BCEWithLogitsLoss(), ONES.long(), "floats of the predictions' shape .*; got int64"),
        (1, nn.BCEWithLogitsLoss(), 2 * ONES - 1, r"must lie in 0\.\.1; got from -1 to 1; map -1 and 1 to 0 and 1"),
        (1, nn.SoftMarginLoss(), ONES, r"must be -1 or 1; got \[0\.0, 1\.0\]; map 0 and 1 to -1 and 1"),
        (1, lambda z, t: z @ t, ONES[:, 0], "the loss must take the module's predictions and the targets"),
        (1, lambda z, t: (z - t) ** 2, ONES[:, 0], r"must not depend on other rows; got .* of shape \(3, 3\);"),
    ],
)
def test_targets_that_the_loss_does_not_take_are_described(outputs, loss, targets, message):
    torch.manual_seed(1)
    with pytest.raises(InputError, match=message):
        gs.losses.Torch(nn.Linear(P, outputs).double(), loss, [(ROWS, targets)])


def test_targets_of_every_agent_are_looked_at():
    good, bad = (ROWS, CLASSES), (ROWS, CLASSES + 5)
    with pytest.raises(InputError, match=r"class numbers 0\.\.2, .*; got \[5, 6, 7\]"):
        gs.losses.Torch(nn.Linear(P, 3).double(), nn.CrossEntropyLoss(), [good, bad])
    ignored = gs.losses.Torch(nn.Linear(P, 3).double(), nn.CrossEntropyLoss(reduction="sum", ignore_index=7), [good])
    assert ignored.m == 1


def test_inputs_that_the_module_does_not_take_are_described():
    message = r"the module must take the inputs; got RuntimeError: .* for inputs in float64 of shape \(3, 4\); give"
    with pytest.raises(InputError, match=message):
        gs.losses.Torch(nn.Linear(P + 1, 1).double(), nn.BCEWithLogitsLoss(), [(ROWS, ONES)])


def test_points_of_another_shape_are_refused():
    loss = wrapped()
    with pytest.raises(InputError, match=r"x must have shape \(m, d\) = \(5, 4\)"):
        loss.gradient(np.zeros((5, 3)))
    with pytest.raises(InputError, match=r"x must have shape \(4,\)"):
        loss.load_into(model("logistic"), np.zeros((5, 4)))
    with pytest.raises(InputError, match="parameters of the one that the loss was made from"):
        loss.load_into(nn.Linear(P, 1), np.zeros(4))
    for rows in ([[0]] * 4, [[]] * 5):
        with pytest.raises(InputError, match="rows must be one or more integers for each agent, 5 in all"):
            loss.gradient_of_rows(points(loss), rows)
    with pytest.raises(InputError, match=r"rows must lie in 0\.\.n_i - 1"):
        loss.gradient_of_rows(points(loss), [[0], [1], [0], [0], [0]])


def test_the_blocks_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    namespace = {"__name__": "autodiff"}
    for source in blocks:
        exec(compile(source, PAGE, "exec"), namespace)


# ---- Hessians


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("sizes", [EQUAL, RAGGED])
@pytest.mark.parametrize("kind", LOSSES)
def test_hessians_are_those_of_the_built_in_loss(kind, sizes, reduction, monkeypatch):
    loss, expected = wrapped(kind, sizes, reduction=reduction), built_in(kind, sizes, reduction=reduction)
    assert_same_hessians(loss, expected, points(loss), close, monkeypatch)
    assert loss._batches_directions


def test_hessians_in_pieces_of_rows_in_single_precision_and_direction_by_direction():
    expected = built_in("softmax", RAGGED)
    few, single, slow = (
        wrapped("softmax", rows_at_once=3),
        wrapped("softmax", module=model("softmax", torch.float32)),
        wrapped("softmax"),
    )
    slow._batches_directions = False
    x = points(few)
    for loss, tolerance in ((few, 1e-10), (single, 1e-5), (slow, 1e-10)):
        found = loss.hessian(x.astype(loss.dtype))
        assert found.dtype == np.float64
        close(found, expected.hessian(x), tolerance)


def test_a_linear_function_has_hessian_zero():
    loss = wrapped("squares", loss=lambda predictions, targets: predictions[:, 0] * targets)
    assert not loss.hessian(points(loss)).any()


def test_newton_takes_the_steps_of_the_built_in_loss():
    assert_newton_agrees(wrapped("softmax"), built_in("softmax", RAGGED))


def test_a_loss_on_a_device_has_no_hessians():
    assert not wrapped().to("cpu").has_hessian


class OnceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores):
        ctx.save_for_backward(scores)
        return nn.functional.softplus(scores)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * torch.sigmoid(ctx.saved_tensors[0])


def test_modules_without_second_derivatives_run_without_them():
    def once(predictions, targets):
        return (OnceOnly.apply(predictions) - targets * predictions)[:, 0]

    loss, expected = wrapped(loss=once), built_in("logistic", RAGGED)
    assert not loss.has_hessian
    graph, mu = gs.Graph.ring(5), 0.5
    with pytest.raises(InputError, match="Newton needs losses with values and Hessians"):
        gs.solve(gs.Problem(loss, mu=mu), graph, gs.Newton())
    stop = gs.Stop(gap=gs.Relative(1e-10), iterations=100)
    ours, theirs = (gs.solve(gs.Problem(each, mu=mu), graph, stop=stop) for each in (loss, expected))
    assert (ours.parameters["method"], theirs.parameters["method"]) == ("LBFGS", "Newton")
    # The gap is at least mu/2 |x - x*|^2, summed over the agents.
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-4)
