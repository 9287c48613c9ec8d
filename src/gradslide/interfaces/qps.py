"""Quadratic programs from QPS and MPS files."""

import gzip
import os
import re
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from gradslide._support.arrays import to_numpy
from gradslide._support.errors import InputError, MissingPackageError, require
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import ArrayLike, Sparse
from gradslide.interfaces.arrays import box, quadratic_loss, rows
from gradslide.problems.saddle import LinearlyConstrained

if TYPE_CHECKING:
    from highspy import HighsModel

# HiGHS sets entries of rows below 1e-9 to zero; this is the least that it allows.
_SMALLEST_ENTRY = 1e-12
# Sections that HiGHS would skip, or that a quadratic program does not have.
_SECTIONS_REFUSED = ("QCMATRIX", "CSECTION", "SOS", "INDICATORS", "PWLOBJ")


class QpsProblem(LinearlyConstrained):
    """The program of a QPS or MPS file, which `gs.from_qps` returns.

    It minimizes f(x) = sign * (objective of the file - offset).

    Parameters
    ----------
    path : path-like
        The file.

    Attributes
    ----------
    row_names, column_names : list of str
        Names of constraints and variables, in the order of the rows and columns of A.
    offset : float
        The constant in the file's objective, which f leaves out.
    sign : int
        -1 if the file maximizes, else 1.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        model = _read(Path(path))
        lp = model.lp_
        self.row_names: list[str] = list(lp.row_names_)
        self.column_names: list[str] = list(lp.col_names_)
        self.offset = float(lp.offset_)
        self.sign = -1 if "Max" in str(lp.sense_) else 1
        n, k = lp.num_col_, lp.num_row_
        require(n > 0, "the file must have columns", f"none in {path}", "check its COLUMNS section")
        self._require_continuous(model)
        lo, hi = np.array(lp.col_lower_), np.array(lp.col_upper_)
        # By convention, a negative upper bound alone removes the default lower bound, which is 0.
        lo = np.where((lo == 0) & (hi < 0), -np.inf, lo)
        domain = box(lo, hi, names=[f"column {name}" for name in self.column_names])
        matrix = lp.a_matrix_
        A = sp.csc_array((matrix.value_, matrix.index_, matrix.start_), shape=(k, n)).tocsr()
        A, lower, upper = rows(A, np.array(lp.row_lower_), np.array(lp.row_upper_))
        loss = quadratic_loss(self.sign * _hessian(model), self.sign * np.array(lp.col_cost_))
        super().__init__(loss, A, domain=domain, lower=lower, upper=upper)

    def original_objective(self, x: ArrayLike) -> float:
        """Return the objective of the file.

        Parameters
        ----------
        x : array_like, shape (n,)
            The point, for example `solution.mean`.

        Returns
        -------
        float
        """
        point = self.placed(to_numpy(x).reshape(1, -1))
        return self.sign * float(self.objective(point)[0]) + self.offset

    def _require_continuous(self, model: "HighsModel") -> None:
        """Refuse integer and semicontinuous columns."""
        kinds = [str(kind).rpartition(".k")[2] for kind in model.lp_.integrality_]
        others = [name for name, kind in zip(self.column_names, kinds, strict=False) if kind != "Continuous"]
        if others:
            kind = kinds[self.column_names.index(others[0])].lower()
            got = f"{len(others)} that are not, {others[0]} ({kind}) first"
            remedy = "use a mixed integer solver, or remove the markers and integer bounds to solve the relaxation"
            raise InputError("all columns must be continuous", got, remedy)


@checked_arguments
def from_qps(path: str | os.PathLike[str]) -> QpsProblem:
    """Read a linear or quadratic program from a QPS or MPS file, which may be compressed (.gz).

    Parameters
    ----------
    path : path-like
        The file, in free or fixed format, with a quadratic objective in QUADOBJ, QMATRIX or QSECTION.

    Returns
    -------
    QpsProblem
        A `LinearlyConstrained` with names and the objective's offset. `solution.dual[i]` belongs to
        `row_names[i]`, and the optimum changes by its negative times the change of the right-hand side.
        A file without rows has one multiplier all the same, which is 0.

    Raises
    ------
    InputError
        If the file cannot be read to its end, has integer columns or is not convex.
    MissingPackageError
        If highspy is not installed.

    Notes
    -----
    HiGHS reads the file. The objective is c'x + x'Qx/2 - the right-hand side of its row. An upper
    bound below 0 without a lower one means that there is no lower bound. A file that maximizes is
    turned around: see `sign` and `original_objective`.

    Examples
    --------
    >>> import gradslide as gs
    >>> problem = gs.from_qps("portfolio.qps.gz")  # doctest: +SKIP
    >>> solution = gs.solve(problem)  # doctest: +SKIP
    >>> problem.original_objective(solution.mean)  # doctest: +SKIP
    -0.0171
    >>> dict(zip(problem.column_names, solution.mean))  # doctest: +SKIP
    {'BONDS': 0.4, 'SHARES': 0.6}
    """
    return QpsProblem(path)


def _read(path: Path) -> "HighsModel":
    try:
        from highspy import Highs
    except ModuleNotFoundError as error:
        remedy = "in a checkout of gradslide: pip install '.[qps]'"
        raise MissingPackageError("gs.from_qps needs highspy", "none installed", remedy) from error
    require(path.is_file(), "path must be a QPS or MPS file", path, "check the path")
    with tempfile.TemporaryDirectory() as folder:
        # HiGHS goes by the ending of the name.
        copy, log = Path(folder) / "model.mps", Path(folder) / "log"
        _unpack(path, copy)
        _require_whole(path, copy)
        highs = Highs()
        highs.setOptionValue("log_to_console", False)
        highs.setOptionValue("log_file", str(log))
        highs.setOptionValue("small_matrix_value", _SMALLEST_ENTRY)
        status = str(highs.readModel(str(copy)))
        said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        if status.endswith("kError"):
            told = _told(path, said.replace(f" reading {copy}", ""), "ERROR:")
            raise InputError("the file must be in QPS or MPS format", told, "correct it")
        # Undefined rows and repeated entries; tiny entries are no loss.
        skipped = "\n".join(line for line in said.splitlines() if line.endswith("ignored") and "|value|" not in line)
        require(not skipped, "every entry of the file must count", _told(path, skipped, "WARNING:"), "correct it")
        return highs.getModel()


def _unpack(path: Path, copy: Path) -> None:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
    except gzip.BadGzipFile as error:
        raise InputError("a file that ends in .gz must be compressed", f"{path}: {error}", "rename it") from error
    except (EOFError, zlib.error) as error:
        raise InputError("a compressed file must be whole", f"{path}: {error}", "get it again") from error


def _require_whole(path: Path, copy: Path) -> None:
    """Refuse a file that does not come to its end, and sections of other kinds of problems."""
    with copy.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.strip().upper() == "ENDATA":
                return
            section = re.match(r"[A-Z0-9]+", line)
            if section and section.group() in _SECTIONS_REFUSED:
                remedy = "remove the section, or use a solver for this kind of problem"
                raise InputError("constraints must be linear", f"a section {section.group()} in {path}", remedy)
    rule = "the file must be in QPS or MPS format, with ENDATA as its last line"
    raise InputError(rule, f"{path} without it", "get the whole file; add the line only if nothing else is missing")


def _told(path: Path, said: str, kind: str) -> str:
    """The file, and the first line of this kind that HiGHS wrote about it."""
    lines = [line.partition(kind)[2].strip() for line in said.splitlines() if kind in line]
    return f"{path}: {lines[0]}" if lines else str(path)


def _hessian(model: "HighsModel") -> Sparse:
    n, stored = model.lp_.num_col_, model.hessian_
    if not stored.dim_:
        return sp.csr_array((n, n))
    Q = sp.csc_array((stored.value_, stored.index_, stored.start_), shape=(n, n))
    if str(stored.format_).endswith("kTriangular"):
        Q = Q + sp.tril(Q, k=-1).T
    return sp.csr_array(Q)
