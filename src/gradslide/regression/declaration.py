"""Which columns a regression uses, its family and its penalties."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from gradslide._support.errors import InputError, kind_of, require, require_number, unknown_name
from gradslide._support.keywords import CheckedArguments

Family = Literal["linear", "logistic", "poisson", "cox"]
Missing = Literal["refuse", "drop", "mean"]
Covariance = Literal["model", "rows", "site"]

FAMILIES: tuple[str, ...] = get_args(Family)
# Columns with a role of their own, by the families that have it.
_ROLES = {"label": ("linear", "logistic", "poisson"), "exposure": ("poisson",), "time": ("cox",), "event": ("cox",)}
_NEEDED = {"linear": ("label",), "logistic": ("label",), "poisson": ("label",), "cox": ("time", "event")}


@dataclass(frozen=True, kw_only=True)
class Regression(CheckedArguments):
    """A regression over tables at sites.

    It minimizes, over the rows of all sites,

        sum_i w_i loss(x_i b + b_0, y_i) + lasso sum_j f_j |b_j| + ridge/2 sum_j f_j b_j^2

    with the intercept b_0 not penalized. Without penalties b is the maximum likelihood estimate,
    and there are standard errors.

    Parameters
    ----------
    family : {"linear", "logistic", "poisson", "cox"}
        Half the squared residual; the negative log-likelihood of a class, of two or more; that of a
        count; Cox's negative log partial likelihood, with Efron's treatment of ties, where every
        site is a stratum.
    label : str
        The column of the targets: numbers, classes or counts. Not for "cox".
    time, event : str
        For "cox": the columns of the time and of whether the event happened then, 0 or 1.
    features : sequence of str, optional
        The columns of the features, in this order; by default all columns without another role.
    categorical : sequence of str or mapping of str to sequence of str, optional
        Features that are categories. Text and true/false columns are anyway. A mapping states the
        levels; the first one is the reference. Levels that are not stated are those in the table,
        sorted, and must be the same at all sites.
    classes : sequence of str, optional
        The levels of the label of a logistic regression, the reference first; by default those in
        the table, sorted, which must be the same at all sites.
    weight : str, optional
        The column of the rows' weights.
    exposure : str, optional
        For "poisson": the column of the exposures.
    units : mapping of str to str, optional
        Units of columns, which sites must have in common.
    missing : {"refuse", "drop", "mean"}
        What happens to rows with missing entries: an error that counts them, they are left out, or
        missing numbers are replaced by the mean over all sites. Rows without a label are left out then.
    minimum_rows : int
        A site with fewer rows is refused.
    intercept : bool
        Whether there is an intercept. "cox" has none.
    ridge, lasso : float
        Weights of the penalties, on the scale of the sum over all rows: `Ridge(alpha)` of
        scikit-learn is ridge=alpha, `LogisticRegression(C)` is ridge=1/C, and `Lasso(alpha)` is
        lasso=n*alpha.
    standardize : bool
        Whether the penalties are those of columns that are scaled to standard deviation 1 over all
        sites. Coefficients are reported in original units in either case.
    penalty_factors : mapping of str to float, optional
        Factors f_j of columns, 1 by default; 0 leaves a column without penalty.
    covariance : {"model", "rows", "site"}
        Standard errors from the Hessian; or robust ones (sandwich): with independent rows (HC1, not
        for "cox"), or with rows of one site that may depend on each other, which needs many sites.
    confidence : float
        Of the intervals, between 0 and 1.
    bounds : mapping of str to pair of float, optional
        Lower and upper bounds of columns of numbers. Entries beyond are clipped.
    for_release : bool
        Whether the model is to be released with differential privacy (`Solution.release`): "logistic",
        with a ridge on all coefficients, of columns that are scaled by their bounds, and nothing that
        depends on the data but the optimum. Bounds, levels and classes are stated then.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> rng = np.random.default_rng(0)
    >>> table = {"site": np.repeat(["a", "b", "c"], 40), "age": rng.integers(20, 80, 120)}
    >>> table["pressure"] = 90 + 0.5 * table["age"] + rng.normal(size=120)
    >>> regression = gs.Regression(family="linear", label="pressure", features=["age"])
    >>> solution = gs.fit(regression, table, sites="site")
    >>> solution.model.names, solution.model.coefficients.round(1).tolist()
    (('intercept', 'age'), [90.0, 0.5])
    """

    family: Family
    label: str | None = None
    time: str | None = None
    event: str | None = None
    features: Sequence[str] | None = None
    categorical: Sequence[str] | Mapping[str, Sequence[Any] | None] = ()
    classes: Sequence[Any] | None = None
    weight: str | None = None
    exposure: str | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    missing: Missing = "refuse"
    minimum_rows: int = 10
    intercept: bool = True
    ridge: float = 0.0
    lasso: float = 0.0
    standardize: bool = False
    penalty_factors: Mapping[str, float] = field(default_factory=dict)
    covariance: Covariance = "model"
    confidence: float = 0.95
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    for_release: bool = False

    def __post_init__(self) -> None:
        for name, known in (("family", Family), ("missing", Missing), ("covariance", Covariance)):
            if getattr(self, name) not in get_args(known):
                raise unknown_name(name, getattr(self, name), get_args(known))
        for name in ("label", "time", "event", "weight", "exposure"):
            self._check_role(name)
        for name in ("features", "classes"):
            self._set(name, _names(name, getattr(self, name)))
        given = self.categorical
        pairs = (
            given.items()
            if isinstance(given, Mapping)
            else ((name, None) for name in _names("categorical", given) or ())
        )
        self._set("categorical", {name: _names(f"the levels of {name}", levels) for name, levels in pairs})
        for name in ("units", "penalty_factors", "bounds"):
            is_mapping = isinstance(getattr(self, name), Mapping)
            require(is_mapping, f"{name} must map columns to values", kind_of(getattr(self, name)), "give a dict")
            self._set(name, dict(getattr(self, name)))
        require_number("minimum_rows", self.minimum_rows, "1 for no limit", least=1, whole=True)
        require_number("ridge", self.ridge, "0 for none", least=0)
        require_number("lasso", self.lasso, "0 for none", least=0)
        for name, factor in self.penalty_factors.items():
            require_number(f"the penalty factor of {name}", factor, "0 for no penalty", least=0)
        self._set("bounds", {name: _interval(name, each) for name, each in self.bounds.items()})
        require_number("confidence", self.confidence, "0.95 for 95 %", above=0, most=1 - 1e-12)
        rule, remedy = "covariance of a Cox regression must be model or site", 'use covariance="site" for robust errors'
        require(self.family != "cox" or self.covariance != "rows", rule, "rows", remedy)
        if self.classes is not None:
            is_logistic = self.family == "logistic"
            require(is_logistic, "classes are for a logistic regression", self.family, "leave them out")
            require(len(self.classes) > 1, "a label needs two or more classes", self.classes, "state all of them")
        named = [name for name in self.roles.values() if name is not None] + list(self.features or ())
        twice = [name for name, count in Counter(named).items() if count > 1]
        rule, remedy = "a column must have one role", "leave it out of features, or name another column"
        require(not twice, rule, f"{', '.join(twice)} with more", remedy)
        if self.for_release:
            self._check_for_release()

    def _check_for_release(self) -> None:
        """Refuse what would make the sensitivity unknown."""
        rule, remedy = "a regression for release must have {}", "see the page on tables, under Release"
        premises = [
            ("family logistic, whose gradients are bounded", self.family == "logistic", self.family),
            ("a ridge above 0", self.ridge > 0, self.ridge),
            ("stated features", self.features is not None, None),
            ("stated classes", self.classes is not None, None),
            ("no weights", self.weight is None, self.weight),
            ("an intercept", self.intercept, "intercept=False"),
            ("no penalty factors and no standardized columns", not (self.penalty_factors or self.standardize), "some"),
            ('missing "refuse" or "drop"', self.missing != "mean", self.missing),
            ("stated levels of categorical features", all(self.levels.values()), self.categorical),
        ]
        for what, holds, got in premises:
            require(holds, rule.format(what), got, remedy)

    def _set(self, name: str, value: Any) -> None:
        """Set a field of the frozen dataclass while it is made."""
        object.__setattr__(self, name, value)

    def _check_role(self, name: str) -> None:
        value, families = getattr(self, name), _ROLES.get(name, FAMILIES)
        if value is None:
            rule = f"a {self.family} regression needs {name}, the name of a column"
            require(name not in _NEEDED[self.family], rule, "none", f'for example {name}="..."')
            return
        require(isinstance(value, str), f"{name} must be the name of a column", kind_of(value), "give a string")
        rule = f"{name} is for a {' or '.join(families)} regression"
        require(self.family in families, rule, f"family {self.family!r}", "leave it out, or change the family")

    @property
    def roles(self) -> dict[str, str | None]:
        """The columns that are not features, by their role; None where there is none."""
        return {name: getattr(self, name) for name in ("label", "time", "event", "exposure", "weight")}

    @property
    def is_penalized(self) -> bool:
        """Whether coefficients are penalized, so that there are no standard errors."""
        return self.ridge > 0 or self.lasso > 0

    @property
    def has_intercept(self) -> bool:
        """Whether there is an intercept: not in Cox's model, whose baseline hazard takes its place."""
        return self.intercept and self.family != "cox"

    @property
    def levels(self) -> dict[str, tuple[str, ...] | None]:
        """The features that are categories, with the levels that are stated."""
        return dict(self.categorical)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def _interval(name: str, given: Any) -> tuple[float, float]:
    """A pair of bounds."""
    rule, remedy = f"the bounds of {name} must be two numbers, the lower one first", "for example (18, 90)"
    is_pair = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2
    require(is_pair, rule, repr(given), remedy)
    for each in given:
        require_number(f"a bound of {name}", each, remedy)
    require(given[0] < given[1], rule, repr(given), remedy)
    return float(given[0]), float(given[1])


def _names(what: str, given: Any) -> tuple[str, ...] | None:
    """Names of columns or levels as texts, without repetitions."""
    if given is None:
        return None
    rule, remedy = f"{what} must be a sequence of different names", 'for example ["age", "smoker"]'
    require(isinstance(given, Sequence) and not isinstance(given, str), rule, kind_of(given), remedy)
    names = tuple(_text(each) for each in given)
    twice = [name for name, count in Counter(names).items() if count > 1]
    require(not twice, rule, f"{', '.join(twice)} twice", remedy)
    if not names and not what.startswith("categorical"):
        raise InputError(rule, "none", remedy)
    return names


def _text(level: Any) -> str:
    """A level as tables have it: true, 3, III."""
    if isinstance(level, bool):
        return str(level).lower()
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)
