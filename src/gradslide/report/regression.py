"""What a page shows of a fitted regression: a verdict, the coefficients, and how well it predicts."""

import math
from collections.abc import Mapping
from typing import Any

Model = Mapping[str, Any]


def verdict(model: Model, name: str = "") -> list[dict[str, Any]]:
    """Return sentences that hold, or do not, the most important one first; then what is doubtful.

    Parameters
    ----------
    model : mapping
        A model card.
    name : str
        Of the network, where there are several.
    """
    statistics, found = model["statistics"], model["provenance"]
    is_fine = found["status"] == "CONVERGED"
    what = f"The {model['regression']['family']} regression of {statistics['rows']:,.0f} rows at "
    what += f"{statistics['sites']:,.0f} sites"
    end = "" if is_fine else f" It is not: {found['message']}."
    prefix = f"{name}: " if name else ""
    sentences = [{"text": f"{prefix}{what} is at its optimum.{end}", "holds": is_fine}]
    doubts = [{"text": f"{prefix}{text}.", "holds": None, "word": "doubtful"} for text in model["warnings"]]
    return sentences + doubts


def model_tables(model: Model, name: str = "") -> list[dict[str, Any]]:
    """Return the tables of a model.

    Parameters
    ----------
    model : mapping
        A model card; with "by_site" where sites are in this process.
    name : str
        Of the network, where there are several.
    """
    suffix = f" ({name})" if name else ""
    tables = [_coefficients(model, suffix), _quality(model, suffix), _fit(model, suffix)]
    return [each for each in tables if each["rows"]]


def _coefficients(model: Model, suffix: str) -> dict[str, Any]:
    own, rows = model["regression"], model["coefficients"]
    columns, ratio = ["coefficient"], ""
    if rows and "error" in rows[0]:
        letter = "t" if "t" in rows[0] else "z"
        columns = ["coefficient", "error", letter, "p", "low", "high"]
        ratio = {"logistic": "odds ratio", "poisson": "rate ratio", "cox": "hazard ratio"}.get(own["family"], "")
    level = f"{100 * own['confidence']:g} %"
    heads = {"error": "standard error", "low": f"{level} from", "high": "to"}
    units = {each["name"]: each["unit"] for each in model["schema"]["variables"]}
    cells = [[_named(row["name"], units), *(row.get(name) for name in columns), *_ratio(row, ratio)] for row in rows]
    headings = ["", *(heads.get(name, name) for name in columns), *([ratio, f"{level} from", "to"] if ratio else [])]
    return {"title": f"Coefficients{suffix}", "columns": headings, "rows": cells, "notes": _notes(model)}


def _named(name: str, units: Mapping[str, str]) -> str:
    """A coefficient with the unit of its column."""
    column = name.rpartition(": ")[2].partition("=")[0]
    return f"{name} (per {units[column]})" if units.get(column) else name


def _ratio(row: Mapping[str, Any], ratio: str) -> list[float | None]:
    """exp of the coefficient and of its interval; none for an intercept."""
    if not ratio:
        return []
    if row["name"].rpartition(": ")[2] == "intercept":
        return [None] * 3
    return [_exp(row[name]) for name in ("coefficient", "low", "high")]


def _exp(value: float | None) -> float | None:
    return math.exp(value) if value is not None and value < 700 else None


def _notes(model: Model) -> list[str]:
    variables = model["schema"]["variables"]
    categorical = [each for each in variables if each["levels"]]
    notes = [
        f"reference level of {each['name']}: {each['levels'][0]}" for each in categorical if each["role"] == "feature"
    ]
    classes: list[str] = next((each["levels"] for each in categorical if each["role"] == "label"), [])
    if len(classes) == 2:
        notes.append(f"coefficients are of the log-odds of {classes[1]}")
    elif classes and not (model["regression"]["ridge"] or model["regression"]["lasso"]):
        notes.append(f"reference class: {classes[0]}")
    if model["covariance"]["matrix"] is None and model["covariance"]["problem"]:
        notes.append(model["covariance"]["problem"])
    return notes


def _quality(model: Model, suffix: str) -> dict[str, Any]:
    """Metrics of all rows, and of those of each site here."""
    titles = {"fit": "rows of the fit", "test": "test rows"}
    columns = [(titles[kind], metrics) for kind, metrics in model["evaluation"].items()]
    for site, kinds in (model.get("by_site") or {}).items():
        columns += [(f"{site}, {titles[kind]}", metrics) for kind, metrics in kinds.items()]
    names = list(dict.fromkeys(name for _, metrics in columns for name in metrics))
    rows = [[name, *(metrics.get(name) for _, metrics in columns)] for name in names]
    return {"title": f"How well it predicts{suffix}", "columns": ["", *(head for head, _ in columns)], "rows": rows}


def _fit(model: Model, suffix: str) -> dict[str, Any]:
    rows = [[name, value] for name, value in model["statistics"].items() if value is not None]
    return {"title": f"The fit{suffix}", "columns": ["", "value"], "rows": rows}
