"""Problems with linear constraints in the formats of other libraries.

Each adapter turns such a problem into a `gs.LinearlyConstrained` and says how its answer reads there:
`cvxpy_problem` for CVXPY, `qps` for QPS and MPS files, `scipy_arguments` for the conventions of
`scipy.optimize`; `arrays` is what they share. A package that an adapter needs is imported when it is
used. Data sets for losses belong in `data`, estimators in `sklearn`, methods nowhere here.
"""

from typing import TYPE_CHECKING

from gradslide._support.lazy import lazy_names

if TYPE_CHECKING:
    from gradslide.interfaces.cvxpy_problem import CvxpyProblem as CvxpyProblem
    from gradslide.interfaces.cvxpy_problem import from_cvxpy as from_cvxpy
    from gradslide.interfaces.qps import QpsProblem as QpsProblem
    from gradslide.interfaces.qps import from_qps as from_qps
    from gradslide.interfaces.scipy_arguments import from_linprog as from_linprog
    from gradslide.interfaces.scipy_arguments import from_scipy as from_scipy
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "cvxpy_problem": "CvxpyProblem from_cvxpy",
            "qps": "QpsProblem from_qps",
            "scipy_arguments": "from_linprog from_scipy",
        },
    )
