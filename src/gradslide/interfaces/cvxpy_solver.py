"""What CVXPY has to know of gradslide to make quadratic programs for it. Needs CVXPY."""

from typing import Any, NoReturn

from cvxpy.reductions.solvers.qp_solvers.qp_solver import QpSolver


class Polyhedral(QpSolver):  # type: ignore[misc]  # CVXPY may not be installed
    """A solver that CVXPY prepares quadratic programs for, with rows for the bounds on variables."""

    MIP_CAPABLE = False
    # True makes CVXPY 1.9.3 bound auxiliary variables wrongly where arguments of atoms are scaled.
    BOUNDED_VARIABLES = False

    def name(self) -> str:
        return "GRADSLIDE"

    def import_solver(self) -> None:
        """CVXPY calls this to see whether the solver is installed."""

    def solve_via_data(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("the program is solved by gs.solve")

    def invert(self, solution: Any, inverse_data: Any) -> NoReturn:
        raise NotImplementedError("CvxpyProblem.assign reads solutions")

    def cite(self, data: Any) -> str:
        return ""
