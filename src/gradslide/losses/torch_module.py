"""Convex models written in PyTorch."""

import copy
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gradslide._support.arrays import dtype_of, to_numpy
from gradslide._support.errors import InputError, kind_of, require, require_number
from gradslide._support.types import Array, Device, DType, Tensor
from gradslide.losses.autodiff import (
    FEW,
    AgentBlock,
    Differentiated,
    Reduction,
    first_line,
    missing,
    require_convex,
    require_rows_apart,
    require_sum_of_rows,
)
from gradslide.losses.devices import moved

# The share of a derivative that differences may miss it by, and roundings behind a gradient.
_ROUGH, _ROUNDINGS = 0.1, 64


class Torch(Differentiated):
    """Losses of a PyTorch module, ft_i(x) = sum over agent i's rows of loss(module(input), target).

    x holds the parameters of the module. On the CPU it takes and returns NumPy arrays; the loss of
    a module on a GPU stays on the GPU.

    Parameters
    ----------
    module : torch.nn.Module
        The model, with parameters of type float32 or float64, the precision of the loss. x is all
        those that require a gradient, flattened, in the order of `module.parameters()`; others stay
        fixed. The module is copied, and the copy evaluated in evaluation mode: no dropout, fixed
        batch norm.
    loss : callable
        (predictions, targets) -> the mean, the sum or one number per row, such as
        `nn.CrossEntropyLoss()`. The composition must be convex in x and smooth.
    loaders : sequence
        For each agent a DataLoader, a Dataset, a pair of tensors, or an iterable of pairs
        (inputs, targets). Read once and kept in memory.
    smoothness : array_like, optional
        Lipschitz constants of the gradient, a number or m numbers. None if unknown; AutoPDS does
        not need them.
    reduction : {"sum", "mean", None}
        Over an agent's rows, whatever their batches. None takes the loss of all rows at once as it
        is, and cannot sample.
    check_convexity : bool
        Test convexity on a few segments.
    rows_at_once : int, optional
        Rows, of all agents, that are evaluated together; fewer need less memory.

    Attributes
    ----------
    x0 : ndarray, shape (d,)
        The parameters of the module, a possible start.
    """

    is_user_supplied = True

    def __init__(
        self,
        module: Any,
        loss: Callable[[Any, Any], Any],
        loaders: Sequence[Any],
        *,
        smoothness: npt.ArrayLike | None = None,
        reduction: Reduction = "sum",
        check_convexity: bool = True,
        rows_at_once: int | None = None,
    ) -> None:
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            missing("Torch", "PyTorch", "in a checkout of gradslide: pip install '.[torch]'")
        is_module = isinstance(module, torch.nn.Module)
        require(is_module, "module must be a torch.nn.Module", kind_of(module), "for example torch.nn.Linear(10, 1)")
        require(callable(loss), "loss must be callable", kind_of(loss), "give a function of (predictions, targets)")
        if rows_at_once is not None:
            require_number("rows_at_once", rows_at_once, "leave it out for all at once", least=1, whole=True)
            whole = reduction is not None
            require(whole, "rows_at_once needs a sum over rows", "reduction=None", "leave one of them out")
        first = _checked_parameters(module)
        parts, sizes = read_loaders(loaders, first.dtype, first.device)
        self._shapes = {name: tuple(p.shape) for name, p in _variables(module)}
        self.x0 = np.concatenate([to_numpy(p).ravel() for _, p in _variables(module)])
        there = torch.empty(0, dtype=first.dtype, device=first.device)
        home = None if first.device.type == "cpu" else there
        super().__init__(parts, sizes, len(self.x0), dtype_of(first), home, smoothness, reduction)
        self._there = there
        self._module = copy.deepcopy(module).eval()
        self._loss = copy.deepcopy(loss).eval().to(first.device) if isinstance(loss, torch.nn.Module) else loss
        self._rows_at_once = rows_at_once
        self._per_row = self._vectorized = False
        self._batches_directions = True
        self._try(torch)
        if check_convexity:
            require_convex(self, self.x0)

    def load_into(self, module: Any, x: Array) -> None:
        """Write a point into the parameters of a module.

        Parameters
        ----------
        module : torch.nn.Module
            A module like the one that the loss was made from.
        x : ndarray, shape (d,)
            The parameters, for example `solution.mean`.
        """
        torch = importlib.import_module("torch")
        like_ours = {name: tuple(p.shape) for name, p in _variables(module)} == self._shapes
        rule = "module must have the parameters of the one that the loss was made from"
        require(like_ours, rule, type(module).__name__, f"those are {', '.join(self._shapes)}")
        x = to_numpy(x)
        require(x.shape == (self.d,), f"x must have shape ({self.d},)", x.shape, "give solution.mean, or one row of x")
        with torch.no_grad():
            for (_, parameter), value in zip(_variables(module), self._split(torch.tensor(x)).values(), strict=True):
                parameter.copy_(value)

    def read_samples(self, agent: int, batch: Any) -> tuple[Array, Array]:
        self._require_rows()
        pair = read_pair(batch, self._there.dtype, self._there.device)
        for name, part, own in zip(("inputs", "targets"), pair, self._parts, strict=True):
            rule = f"{name} of a batch must have the shape of the loss's own, {tuple(own.shape[1:])} per row"
            require(part.shape[1:] == own.shape[1:], rule, tuple(part.shape[1:]), "yield a leading axis of samples")
        return pair

    def _placed(self, block: AgentBlock) -> AgentBlock:
        return block._replace(weights=moved(block.weights, self._there))

    def _evaluate(self, block: AgentBlock, x: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
        torch = importlib.import_module("torch")
        x, weights = moved(x, self._there).detach(), block.weights
        values, gradients = torch.zeros_like(x[:, 0]), torch.zeros_like(x)
        with torch.set_grad_enabled(gradient):
            for agents, rows in self._pieces(weights.shape):
                at = x[agents].clone().requires_grad_(gradient)
                inputs, targets = (part[agents, rows] for part in block.parts)
                found = self._values(at, inputs, targets, weights[agents, rows])
                values[agents] += found.detach()
                if gradient:
                    gradients[agents] += torch.autograd.grad(found.sum(), at)[0]
        return (to_numpy(values), to_numpy(gradients)) if self._home is None else (values, gradients)

    def _try_products(self, block: AgentBlock) -> None:
        # At a start of zeros all rows would look alike.
        x, v = np.random.default_rng(0).standard_normal((2, 2, self.d)).astype(self.dtype)
        x = x + self.x0
        found = self._products(block, x, v)[:, 0]
        # Functions with a gradient of their own may be silent about derivatives that it lacks.
        eps = float(np.finfo(self.dtype).eps)
        step = eps ** (1 / 3)
        ends = [self._evaluate(block, x + sign * step * v[:1], gradient=True)[1] for sign in (1, -1)]
        measured = (ends[0] - ends[1]) / (2 * step)
        allowed = _ROUGH * max(np.linalg.norm(found), np.linalg.norm(measured))
        allowed += _ROUNDINGS * eps * np.linalg.norm(ends[0]) / step
        if not np.linalg.norm(found - measured) <= allowed:
            raise ArithmeticError("derivatives of the gradient differ from its differences")

    def _products(self, block: AgentBlock, x: Tensor, directions: Array) -> Array:
        torch = importlib.import_module("torch")
        x, weights = moved(x, self._there).detach(), block.weights
        along = moved(directions, self._there)
        products = torch.zeros((len(x), *along.shape), dtype=x.dtype, device=x.device)
        with torch.enable_grad():
            for agents, rows in self._pieces(weights.shape):
                at = x[agents].clone().requires_grad_()
                inputs, targets = (part[agents, rows] for part in block.parts)
                found = self._values(at, inputs, targets, weights[agents, rows])
                gradient = torch.autograd.grad(found.sum(), at, create_graph=True)[0]
                # Where it does not depend on x, the Hessian is 0.
                if gradient.requires_grad:
                    products[agents] += self._derivatives_along(gradient, at, along).swapaxes(0, 1)
        return to_numpy(products)

    def _derivatives_along(self, gradient: Tensor, at: Tensor, along: Tensor) -> Tensor:
        """The derivatives (c, k, d) of the gradients (k, d) along each direction (c, d)."""
        grad = importlib.import_module("torch").autograd.grad
        given = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
        if self._batches_directions:
            try:
                every = along[:, None].expand(-1, *gradient.shape)
                return grad(gradient, at, every, is_grads_batched=True, **given)[0]
            # What torch.vmap cannot do is told in many ways.
            except Exception:
                self._batches_directions = False
        found = [grad(gradient, at, v.expand(gradient.shape), **given)[0] for v in along]
        return importlib.import_module("torch").stack(found)

    def _pieces(self, shape: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
        """Agents and rows that are evaluated together."""
        agents, rows = shape
        most = self._rows_at_once or max(1, agents * rows)
        step = max(1, most // rows)
        for first in range(0, agents, step):
            for row in range(0, rows, most):
                yield slice(first, first + step), slice(row, row + most)

    def _values(self, x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        torch = importlib.import_module("torch")
        if self._vectorized and len(x) > 1:
            return torch.vmap(self._value)(x, inputs, targets, weights)
        return torch.stack([self._value(*own) for own in zip(x, inputs, targets, weights, strict=True)])

    def _value(self, x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Of one agent."""
        predictions = self._predicted(x, inputs)
        if self._reduction is None:
            return self._loss(predictions, targets).sum()
        return weights @ self._row_losses(predictions, targets)

    def _predicted(self, x: Tensor, inputs: Tensor) -> Tensor:
        return importlib.import_module("torch").func.functional_call(self._module, self._split(x), (inputs,))

    def _row_losses(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each row alone, (rows,), whichever way it puts several together."""
        if self._per_row:
            losses = self._loss(predictions, targets)
        else:
            one = importlib.import_module("torch").vmap(lambda row, target: self._loss(row[None], target[None]))
            losses = one(predictions, targets)
        return losses.reshape(len(predictions), -1).sum(dim=1)

    def _split(self, x: Tensor) -> dict[str, Tensor]:
        """The parameters by name."""
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        pieces = zip(self._shapes.items(), x.split(sizes), strict=True)
        return {name: piece.reshape(shape) for (name, shape), piece in pieces}

    def _try(self, torch: Any) -> None:
        """Refuse what is no sum over rows, is random or has no gradient; find out how it can be evaluated."""
        few = slice(0, min(FEW, int(self._sizes[0])))
        inputs, targets = (part[few] for part in self._parts)
        # At a start of zeros all rows would look alike.
        at = moved((self.x0 + np.random.default_rng(0).standard_normal(self.d)).astype(self.dtype), self._there)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            try:
                predictions = self._predicted(at.requires_grad_(), inputs)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                got = f"{first_line(error)} for inputs in {_described(inputs)}"
                remedy = "give inputs of the shape and type that its first layer takes"
                raise InputError("the module must take the inputs", got, remedy) from error
            # Before the loss is evaluated: on a GPU, a wrong class number ends the process.
            _require_targets(torch, self._loss, predictions, targets, self._parts[1])
            try:
                whole = self._loss(predictions, targets)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                shapes = f"predictions in {_described(predictions)} and targets in {_described(targets)}"
                got = f"{first_line(error)} for {shapes}"
                remedy = "give targets of the shape and type that the loss takes, in each agent's data"
                raise InputError("the loss must take the module's predictions and the targets", got, remedy) from error
            differentiable = isinstance(whole, torch.Tensor) and whole.requires_grad
            rule = "the loss must be a tensor that depends on the module's parameters in a way that has a gradient"
            require(differentiable, rule, kind_of(whole), "use operations of PyTorch only, and no detach")
            again = self._loss(self._predicted(at, inputs), targets)
            same = torch.equal(whole.nan_to_num(), again.nan_to_num())
            require(same, "module and loss must give the same each time", "two values", "remove what is random in them")
            if self._reduction is not None:
                _require_plain_mean(self._loss, self._parts[1])
                self._try_rows(predictions, targets, whole.detach())
            if self.m > 1:
                self._try_agents()

    def _try_rows(self, predictions: Tensor, targets: Tensor, whole: Tensor) -> None:
        got = f"{tuple(predictions.shape)} for {len(targets)} rows"
        remedy = "keep the leading axis, or give reduction=None: no sampling then"
        rowwise = predictions.ndim > 0 and len(predictions) == len(targets)
        require(rowwise, "the module must give one prediction per row", got, remedy)
        self._per_row = whole.ndim > 0
        if self._per_row:
            rule = "the loss must be a number, or one number per row"
            require(
                len(whole) == len(targets), rule, f"shape {tuple(whole.shape)} for {len(targets)} rows", "correct it"
            )
            require_rows_apart(to_numpy(whole), to_numpy(self._loss(predictions[:1], targets[:1])))
            return
        try:
            losses = self._row_losses(predictions, targets)
        except (RuntimeError, ValueError, IndexError) as error:
            got = str(error).partition("\n")[0]
            remedy = 'let it return one number per row (reduction="none"), or give reduction=None: no sampling then'
            raise InputError("the loss must be one that torch.vmap can take row by row", got, remedy) from None
        require_sum_of_rows(float(whole), to_numpy(losses))

    def _try_agents(self) -> None:
        """All agents at once where the module allows it."""
        self._vectorized = True
        try:
            self._evaluate(self._pair(), np.tile(self.x0, (2, 1)), gradient=True)
        # What torch.vmap cannot do is told in many ways.
        except Exception:
            self._vectorized = False

    def _moved(self, home: Array) -> Self:
        other = copy.copy(self)
        other.__dict__.pop("_whole", None)
        other._home = home
        other._there = self._there.to(home.device)
        other._module = copy.deepcopy(self._module).to(home.device)
        other._loss = copy.deepcopy(self._loss).to(home.device) if hasattr(self._loss, "to") else self._loss
        other._parts = [moved(part, home) for part in self._parts]
        return other


def _variables(module: Any) -> list[tuple[str, Any]]:
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def _checked_parameters(module: Any) -> Any:
    """The first parameter of a module whose parameters are alike."""
    found = [p for _, p in _variables(module)]
    remedy = "for example torch.nn.Linear(10, 1); requires_grad_(False) keeps a parameter fixed"
    require(len(found) > 0, "module must have parameters that require a gradient", kind_of(module), remedy)
    kinds = sorted({f"{dtype_of(p)} on {p.device}" for p in found})
    one = len(kinds) == 1 and dtype_of(found[0]) in (np.float32, np.float64)
    rule = "parameters must be all float32, or all float64, on one device"
    require(one, rule, ", ".join(kinds), "convert them: module.double().to(device)")
    return found[0]


def _described(tensor: Tensor) -> str:
    """Type and shape of some rows."""
    if not hasattr(tensor, "dtype"):
        return type(tensor).__name__
    return f"{str(tensor.dtype).rpartition('.')[2]} of shape {tuple(tensor.shape)}"


def _require_targets(torch: Any, loss: Any, predictions: Tensor, targets: Tensor, all_targets: Tensor) -> None:
    """Refuse targets that a loss of PyTorch does not take; targets: of the rows of the predictions."""
    if not isinstance(predictions, torch.Tensor) or predictions.ndim == 0 or len(predictions) != len(targets):
        return  # told below
    nn, functions = torch.nn, torch.nn.functional
    name = getattr(loss, "__name__", type(loss).__name__)
    shape, got = tuple(predictions.shape), _described(targets)
    if _is_one_of(loss, (nn.CrossEntropyLoss, nn.NLLLoss), (functions.cross_entropy, functions.nll_loss)):
        if targets.is_floating_point() and tuple(targets.shape) == shape:
            return  # probabilities of the classes
        rule = f"predictions for {name} must have one score for each class, shape (rows, classes)"
        require(len(shape) > 1, rule, shape, "give the module as many outputs as there are classes")
        expected, K = shape[:1] + shape[2:], shape[1]
        rule = f"targets of {name} must be class numbers of type int64 and shape {expected} for {len(targets)} rows"
        fits = tuple(targets.shape) == expected and str(targets.dtype) in ("torch.int64", "torch.uint8")
        require(fits, rule, got, "convert them, for example targets.long().flatten()")
        skipped = getattr(loss, "ignore_index", -100)
        outside = all_targets[((all_targets < 0) | (all_targets >= K)) & (all_targets != skipped)]
        rule = f"targets of {name} must be class numbers 0..{K - 1}, as the module has {K} outputs"
        remedy = "number the classes from 0, or give the module as many outputs as there are classes"
        require(len(outside) == 0, rule, outside[:3].tolist(), remedy)
    elif _is_one_of(
        loss,
        (nn.BCEWithLogitsLoss, nn.BCELoss),
        (functions.binary_cross_entropy_with_logits, functions.binary_cross_entropy),
    ):
        rule = f"targets of {name} must be floats of the predictions' shape {shape}"
        fits = targets.is_floating_point() and tuple(targets.shape) == shape
        require(fits, rule, got, "convert them: targets.float().reshape(-1, 1) for one output")
        least, most = float(all_targets.min()), float(all_targets.max())
        rule, remedy = f"targets of {name} must lie in 0..1", "map -1 and 1 to 0 and 1: (targets + 1) / 2"
        require(least >= 0 and most <= 1, rule, f"from {least:g} to {most:g}", remedy)
    elif _is_one_of(loss, (nn.SoftMarginLoss,), (functions.soft_margin_loss,)):
        found = torch.unique(all_targets)
        rule = f"targets of {name} must be -1 or 1"
        remedy = "map 0 and 1 to -1 and 1: 2 * targets - 1"
        require(bool((found.abs() == 1).all()), rule, found[:5].tolist(), remedy)


def _is_one_of(loss: Any, kinds: tuple[type, ...], functions: tuple[Any, ...]) -> bool:
    return isinstance(loss, kinds) or any(loss is function for function in functions)


def _require_plain_mean(loss: Any, targets: Array) -> None:
    """Refuse a mean that is weighted by class or skips rows: it depends on the batches."""
    if getattr(loss, "reduction", "") != "mean" or not hasattr(loss, "ignore_index"):
        return
    rule = "the mean over rows must not depend on how they come in batches"
    for name, found in (
        ("class weights", loss.weight is not None),
        ("rows with ignore_index", bool((targets == loss.ignore_index).any())),
    ):
        require(not found, rule, f"{type(loss).__name__} with {name}", 'give it reduction="sum"')


_ROWS = 4096  # of a Dataset that are read at once


def read_loaders(loaders: Any, dtype: DType, device: Device) -> tuple[list[Tensor], Array]:
    """Read inputs and targets of all agents, stacked, and the number of rows of each agent, (m,).

    Floating point data is converted to the given PyTorch dtype.
    """
    torch = importlib.import_module("torch")
    listed = isinstance(loaders, Sequence) and len(loaders) > 0 and not isinstance(loaders, str)
    rule = "loaders must be a list with one loader per agent"
    require(listed, rule, kind_of(loaders), "for example [DataLoader(dataset, batch_size=64)] for one agent")
    inputs, targets, sizes = [], [], []
    # Loaders draw seeds of their own; the user's random numbers stay what they would have been.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for agent, loader in enumerate(loaders):
            pairs = [_read_batch(agent, batch, dtype, device) for batch in _batches(agent, loader)]
            rows = sum(len(target) for _, target in pairs)
            require(rows > 0, "every agent must hold at least one row", f"none for agent {agent}", "drop that agent")
            inputs += [pair[0] for pair in pairs]
            targets += [pair[1] for pair in pairs]
            sizes.append(rows)
    return [_joined("inputs", inputs), _joined("targets", targets)], np.array(sizes)


def read_pair(batch: Any, dtype: DType, device: Device) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of equal length as tensors."""
    torch = importlib.import_module("torch")
    pair = isinstance(batch, tuple | list) and len(batch) == 2
    rule, remedy = "a batch must be a pair of inputs and targets", "give (inputs, targets), both tensors or arrays"
    require(pair, rule, kind_of(batch), remedy)
    try:
        tensors = [torch.as_tensor(part).detach().to(device) for part in batch]
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(rule, str(error).partition("\n")[0], remedy) from None
    shapes = [tuple(tensor.shape) for tensor in tensors]
    fits = all(shapes) and shapes[0][0] == shapes[1][0]
    require(fits, "a batch must have as many inputs as targets", f"shapes {shapes[0]} and {shapes[1]}", "correct it")
    inputs, targets = (tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors)
    return inputs, targets


def _read_batch(agent: int, batch: Any, dtype: DType, device: Device) -> tuple[Tensor, Tensor]:
    inputs, targets = read_pair(batch, dtype, device)
    for name, part in (("inputs", inputs), ("targets", targets)):
        finite = bool(part.isfinite().all())
        require(finite, f"{name} must be finite", f"NaN or infinity for agent {agent}", "remove those rows")
    return inputs, targets


def _batches(agent: int, loader: Any) -> Iterable[Any]:
    data = importlib.import_module("torch").utils.data
    if _is_pair(loader):
        return [loader]
    if isinstance(loader, data.Dataset):
        return data.DataLoader(loader, batch_size=_ROWS)
    rule = "a loader must give all rows of its agent, each time the same"
    whole = not getattr(loader, "drop_last", False)
    require(whole, rule, f"drop_last=True for agent {agent}", "use drop_last=False")
    if isinstance(loader, data.DataLoader) and _is_shuffled(loader):
        # The order of rows decides which of them a seed samples.
        given = {name: getattr(loader, name) for name in ("batch_size", "collate_fn", "num_workers")}
        return data.DataLoader(loader.dataset, **given)
    iterable = isinstance(loader, Iterable) and not isinstance(loader, str)
    rule = "a loader must be a DataLoader, a Dataset, a pair (inputs, targets), or an iterable of such pairs"
    require(iterable, rule, f"{kind_of(loader)} for agent {agent}", "give agent i's own data")
    return loader


def _is_pair(loader: Any) -> bool:
    return isinstance(loader, tuple | list) and len(loader) == 2 and all(hasattr(part, "shape") for part in loader)


def _is_shuffled(loader: Any) -> bool:
    """Whether the loader yields each row of its dataset once, in random order."""
    data = importlib.import_module("torch").utils.data
    sampler = loader.sampler
    return (
        type(sampler) is data.RandomSampler
        and loader.batch_size is not None
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)
    )


def _joined(name: str, parts: list[Tensor]) -> Tensor:
    try:
        return importlib.import_module("torch").cat(parts)
    except RuntimeError as error:
        rule = f"{name} must have one shape in all rows of all agents"
        raise InputError(rule, str(error).partition("\n")[0], "give every agent the same model's data") from None
