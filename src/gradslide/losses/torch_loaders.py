"""The rows that loaders of PyTorch give, read once."""

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.types import Array, Tensor

_ROWS = 4096  # of a Dataset that are read at once


def read_loaders(loaders: Any, dtype: Any, device: Any) -> tuple[list[Tensor], Array]:
    """Inputs and targets of all agents below each other, and the number of rows of each agent, (m,).

    Floating numbers get the dtype, a precision of PyTorch's.
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


def read_pair(batch: Any, dtype: Any, device: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets, as many of the one as of the other."""
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
    require(fits, "a batch must have as many inputs as targets", f"shapes {shapes[0]} and {shapes[1]}", "mend it")
    inputs, targets = (tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors)
    return inputs, targets


def _read_batch(agent: int, batch: Any, dtype: Any, device: Any) -> tuple[Tensor, Tensor]:
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
    """Whether it gives each row of its dataset once, in a random order."""
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
