"""The model card: a fitted regression as data, in memory and in JSON."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from gradslide._support import storage
from gradslide._support.hashing import digest
from gradslide._support.types import Array
from gradslide.regression.declaration import Regression
from gradslide.regression.families import FAMILIES
from gradslide.regression.inference import Covariance, Tests
from gradslide.regression.release import Release
from gradslide.regression.schema import Schema
from gradslide.results.status import REACHED, Status

FORMAT, VERSION = "gradslide regression", 1


@dataclass(frozen=True, eq=False)
class ModelCard:
    """What a fitted regression is; `FittedRegression` describes its attributes."""

    regression: Regression
    schema: Schema
    names: tuple[str, ...]
    coefficients: Array
    covariance: Covariance
    means: Array
    deviations: Array
    statistics: Mapping[str, float]
    evaluation: Mapping[str, Mapping[str, float]]
    provenance: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    by_site: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    release: Release | None = None

    @property
    def standard_errors(self) -> Array | None:
        """Of the coefficients; None with penalties, or if the rows do not determine them."""
        return self.covariance.standard_errors

    @property
    def tests(self) -> Tests | None:
        """z or t, p-values and confidence intervals; None without standard errors."""
        return Tests.of(self.coefficients, self.covariance, self.regression.confidence)

    @property
    def is_sound(self) -> bool:
        """Whether the optimum was reached."""
        return Status[self.provenance["status"]] in REACHED

    def table(self) -> list[dict[str, Any]]:
        """Return one row per coefficient, for tables and data frames.

        Returns
        -------
        list of dict
            name, coefficient and, if there are standard errors, error, statistic, p, low and high.
        """
        tests = self.tests
        rows: list[dict[str, Any]] = [
            {"name": name, "coefficient": value}
            for name, value in zip(self.names, self.coefficients.tolist(), strict=True)
        ]
        if tests is not None:
            more = (tests.errors, tests.statistics, tests.p_values, tests.low, tests.high)
            for row, values in zip(rows, np.column_stack(more).tolist(), strict=True):
                row |= dict(zip(("error", tests.letter, "p", "low", "high"), values, strict=True))
        return rows

    def blocks(self) -> tuple[Array, Array]:
        """Return intercepts and slopes of the linear predictors, (outputs,) and (outputs, columns)."""
        has_intercept = self.regression.has_intercept
        outputs = FAMILIES[self.regression.family].outputs(len(self.schema.classes))
        known = self.coefficients.reshape(-1, len(self.schema.columns) + has_intercept)
        # The reference class has coefficients of 0.
        blocks = np.vstack([np.zeros((outputs - len(known), known.shape[1])), known])
        return blocks[:, 0] if has_intercept else np.zeros(outputs), blocks[:, int(has_intercept) :]

    def to_dict(self) -> dict[str, Any]:
        """Return the model card: plain values, the same at all sites."""
        matrix = self.covariance.matrix
        card = {
            "format": FORMAT,
            "version": VERSION,
            "regression": self.regression.to_dict(),
            "schema": self.schema.to_dict(),
            "coefficients": self.table(),
            "covariance": {
                "kind": self.covariance.kind,
                "matrix": None if matrix is None else matrix.tolist(),
                "degrees of freedom": None if math.isinf(self.covariance.degrees) else self.covariance.degrees,
                "problem": self.covariance.problem,
            },
            "columns": [
                {"name": name, "mean": mean, "deviation": deviation}
                for name, mean, deviation in zip(
                    self.schema.columns, self.means.tolist(), self.deviations.tolist(), strict=True
                )
            ],
            "statistics": dict(self.statistics),
            "evaluation": {name: dict(each) for name, each in self.evaluation.items()},
            "provenance": dict(self.provenance),
            "release": None if self.release is None else asdict(self.release),
            "warnings": list(self.warnings),
        }
        plain: dict[str, Any] = _plain(card)
        return plain

    @property
    def hash(self) -> str:
        """A hash of the model card, by which sites can compare their results."""
        card = json.dumps(self.to_dict(), sort_keys=True).encode()
        return digest(card)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model card as JSON; `gradslide.regression.load_model` reads it.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        Path
            Where it was written.
        """
        return storage.write_atomically(path, (json.dumps(self.to_dict(), indent=2) + "\n").encode())

    @classmethod
    def from_dict(cls, card: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        degrees = card["covariance"]["degrees of freedom"]
        matrix = card["covariance"]["matrix"]
        return cls(
            regression=Regression(**card["regression"]),
            schema=Schema.from_dict(card["schema"]),
            names=tuple(each["name"] for each in card["coefficients"]),
            coefficients=np.array([each["coefficient"] for each in card["coefficients"]], dtype=np.float64),
            covariance=Covariance(
                None if matrix is None else np.array(matrix),
                card["covariance"]["kind"],
                math.inf if degrees is None else degrees,
                card["covariance"]["problem"],
            ),
            means=np.array([each["mean"] for each in card["columns"]], dtype=np.float64),
            deviations=np.array([each["deviation"] for each in card["columns"]], dtype=np.float64),
            statistics=_numbers(card["statistics"]),
            evaluation={name: _numbers(each) for name, each in card["evaluation"].items()},
            provenance=card["provenance"],
            release=None if (release := card.get("release")) is None else Release(**release),
            warnings=tuple(card["warnings"]),
        )


def _numbers(saved: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in saved.items()}


def _plain(value: Any) -> Any:
    """Numbers that JSON has: NaN and infinities are null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
