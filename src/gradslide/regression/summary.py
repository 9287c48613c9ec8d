"""A fitted regression as text, laid out like the tables of statsmodels."""

import math
import textwrap
from collections.abc import Mapping

from gradslide.regression.card import ModelCard
from gradslide.regression.families import FAMILIES

_WIDTH = 78
# The widths of a coefficient, its error, statistic and p-value, and the ends of its interval.
_CELLS = (11, 10, 9, 8, 11, 11)
# A space at which no line ends.
_FIXED = "\0"
_ERRORS = {
    "model": "from the Hessian",
    "rows": "robust (HC1)",
    "site": "clustered by site",
    "none": "none",
}
_COUNTS = ("rows left out", "entries imputed", "weighted events")
_LIKELIHOODS = ("log-likelihood", "null log-likelihood", "LR", "LR p", "pseudo R2")
_NUMBERS = (*_LIKELIHOODS, "R2", "R2 (uncentred)", "adjusted R2", "scale", "deviance", "AIC", "BIC")


def summary_text(model: ModelCard) -> str:
    """Return what `FittedRegression.summary` shows."""
    title = FAMILIES[model.regression.family].title.center(_WIDTH).rstrip()
    double = "=" * _WIDTH
    lines = [title, double, *_head(model), double, *_coefficients(model), double]
    for name, metrics in model.evaluation.items():
        text = f"{'Rows of the fit' if name == 'fit' else 'Test rows'}: {', '.join(_metrics(metrics))}"
        lines += [line.replace(_FIXED, " ") for line in textwrap.wrap(text, _WIDTH)]
    for note in _notes(model):
        lines += textwrap.wrap(note, _WIDTH)
    return "\n".join(lines)


def _head(model: ModelCard) -> list[str]:
    """Facts in two columns."""
    own, statistics = model.regression, model.statistics
    facts = [("Label", own.label if own.label is not None else f"{own.time}, {own.event}")]
    facts += [(name.capitalize(), _count(statistics[name])) for name in ("rows", "sites") if name in statistics]
    if model.release is not None:
        promise = model.release
        facts += [("Released", f"epsilon {promise.epsilon:g}, delta {promise.delta:g}")]
        facts += [("Neighbours", f"{promise.adjacency} one row"), ("Noise", f"{promise.sigma:.4g} (scaled columns)")]
    facts += [("Status", model.provenance["status"]), ("Standard errors", _ERRORS[model.covariance.kind])]
    if own.is_penalized:
        given = [f"{name} {getattr(own, name):g}" for name in ("ridge", "lasso") if getattr(own, name)]
        facts.append(("Penalty", ", ".join(given)))
    if model.schema.classes:
        facts.append(("Classes", ", ".join(model.schema.classes)))
    facts += [(name.capitalize(), _count(statistics[name])) for name in _COUNTS if statistics.get(name)]
    shown = {"LR": f"LR chi2({statistics.get('LR degrees of freedom', 0):.0f})", "LR p": "Prob > chi2"}
    known = [name for name in _NUMBERS if not math.isnan(statistics.get(name, math.nan))]
    numbers = [(shown.get(name, name), _number(statistics[name])) for name in known]
    rows = max(len(facts), len(numbers))
    pairs = zip(*(each + [("", "")] * (rows - len(each)) for each in (facts, numbers)), strict=True)
    return [f"{_pair(*left)}  {_pair(*right)}".rstrip() for left, right in pairs]


def _pair(name: str, value: str) -> str:
    """A fact in half of the width."""
    width = _WIDTH // 2 - 1
    room = width - len(name) - 2
    value = value if len(value) <= room else value[: room - 3] + "..."
    return f"{name}:{value:>{room + 1}}" if name else " " * width


def _coefficients(model: ModelCard) -> list[str]:
    tests = model.tests
    head, numbers = ["coef"], [[_number(value)] for value in model.coefficients]
    if tests is not None:
        low = (1 - model.regression.confidence) / 2
        head += ["std err", tests.letter, f"P>|{tests.letter}|", f"[{low:.3g}", f"{1 - low:.3g}]"]
        columns = (tests.errors, tests.statistics, tests.p_values, tests.low, tests.high)
        for row, (error, statistic, p, *interval) in zip(numbers, zip(*columns, strict=True), strict=True):
            row += [_number(error), _statistic(statistic), f"{p:.3f}", *map(_number, interval)]
    room = _WIDTH - sum(_CELLS[: len(head)])
    lines = [" " * room + _cells(head), "-" * _WIDTH]
    for name, row in zip(model.names, numbers, strict=True):
        # A name that is too long has a line of its own.
        is_long = len(name) > room
        lines += [name] * is_long + [f"{'' if is_long else name:{room}}{_cells(row)}"]
    return lines


def _cells(texts: list[str]) -> str:
    """Cells of a row of the table."""
    return "".join(f"{text:>{width}}" for text, width in zip(texts, _CELLS, strict=False))


def _metrics(metrics: Mapping[str, float]) -> list[str]:
    """How good predictions are, each with spaces at which no line ends."""
    shown = {name: _number(value) for name, value in metrics.items() if name != "AUC exact to"}
    if "AUC" in shown:
        shown["AUC"] += f" (+-{metrics['AUC exact to']:.1g})"
    return [f"{name} {value}".replace(" ", _FIXED) for name, value in shown.items()]


def _notes(model: ModelCard) -> list[str]:
    classes, problem = model.schema.classes, model.covariance.problem
    notes = [f"{problem.capitalize()}."] if problem and problem not in model.warnings else []
    notes += [f"Reference level of {each.name}: {each.levels[0]}." for each in model.schema.features if each.levels]
    if len(classes) == 2:
        notes.append(f"Coefficients are of the log-odds of {classes[1]!r}.")
    elif classes and not model.regression.is_penalized:
        notes.append(f"Reference class: {classes[0]!r}.")
    return notes + [f"Warning: {each}." for each in model.warnings]


def _statistic(value: float) -> str:
    """Three decimals, and at most 8 characters."""
    size = abs(value)
    return f"{value:.3f}" if size < 1e3 else f"{value:.0f}" if size < 1e6 else f"{value:.2g}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _number(value: float) -> str:
    """Five significant digits, and at most 10 characters."""
    if math.isnan(value):
        return ""
    size = abs(value)
    if 1e5 <= size < 1e6:
        return f"{value:.0f}"
    return f"{value:.4g}" if size and (size < 1e-3 or size >= 1e6) else f"{value:.5g}"
