"""QPS and MPS files: every section means what it means elsewhere, and programs survive being written and read."""

import gzip
import sys

import numpy as np
import pytest

import gradslide as gs

# minimize or maximize x + 2 y - z + (-2 x^2 + 2 x y - 4 y^2) / 2 + 7, with all kinds of rows, ranges and bounds.
ALL_SECTIONS = """\
* a comment
NAME          EXAMPLE
OBJSENSE
    MAX
ROWS
 N  COST
 N  OTHER
 L  LIM1
 G  LIM2
 E  UPWARDS
 E  DOWNWARDS
 L  LIM3
COLUMNS
    X         COST         1.0   LIM1         1.0
    X         LIM2         1.0   OTHER        5.0
    Y         COST         2.0   LIM1         1.0
    Y         UPWARDS     -1.0   LIM3         1.0
    Z         COST        -1.0   UPWARDS      1.0
    Z         DOWNWARDS    1.0
    W         LIM2         1e-10
RHS
    RHS       COST        -7.0   LIM1         4.0
    RHS       LIM2         1.0   UPWARDS      7.0
    RHS       DOWNWARDS    2.0   LIM3         9.0
RANGES
    RNG       LIM1         2.5   LIM2         3.0
    RNG       UPWARDS      4.0   DOWNWARDS   -4.0
BOUNDS
 UP BND       X            4.0
 LO BND       Y           -1.0
 UP BND       Y            1.0
 FR BND       Z
 UP BND       W           -3.0
QUADOBJ
    X         X           -2.0
    X         Y            1.0
    Y         Y           -4.0
ENDATA
"""
SMALL = """\
NAME SMALL
ROWS
 N COST
 L R1
COLUMNS
{columns}
RHS
 RHS R1 4
BOUNDS
{bounds}
{more}
ENDATA
"""
COLUMNS = " X COST 1 R1 1\n Y COST 2 R1 1"


def small(columns=COLUMNS, bounds="", more=""):
    return SMALL.format(columns=columns, bounds=bounds, more=more)


def read(folder, text, name="program.qps"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return gs.from_qps(path)


def curvature(problem):
    (Q,) = problem.loss.quadratic_part()
    return Q if isinstance(Q, np.ndarray) else Q.toarray()


def linear_part(problem):
    return problem.loss.gradient(np.zeros((1, problem.d)))[0]


def entries(problem):
    A = problem.A.entries()
    return A if isinstance(A, np.ndarray) else A.toarray()


def assert_all_sections(problem):
    assert problem.row_names == ["LIM1", "LIM2", "UPWARDS", "DOWNWARDS", "LIM3"]
    assert problem.column_names == ["X", "Y", "Z", "W"]
    assert (problem.sign, problem.offset) == (-1, 7)
    assert problem.domain.lo.tolist() == [[0, -1, -np.inf, -np.inf]], "W has no lower bound, as its upper one is < 0"
    assert problem.domain.hi.tolist() == [[4, 1, np.inf, -3]]
    assert problem.duals.term.lower.tolist() == [[1.5, 1, 7, -2, -np.inf]]
    assert problem.duals.term.upper.tolist() == [[4, 4, 11, 2, 9]]
    assert entries(problem).tolist() == [[1, 1, 0, 0], [1, 0, 0, 1e-10], [0, -1, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0]]
    # Turned around, as the file maximizes.
    assert linear_part(problem).tolist() == [-1, -2, 1, 0]
    assert curvature(problem).tolist() == [[2, -1, 0, 0], [-1, 4, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert problem.original_objective([3.0, 1.0, 2.0, 0.0]) == 3 + 2 - 2 + (-18 + 6 - 4) / 2 + 7


@pytest.mark.parametrize("name", ["program.qps", "program.mps", "program.QPS", "program"])
def test_every_section_is_read(tmp_path, name):
    assert_all_sections(read(tmp_path, ALL_SECTIONS, name))


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "program.qps.gz"
    path.write_bytes(gzip.compress(ALL_SECTIONS.encode()))
    assert_all_sections(gs.from_qps(str(path)))


def test_both_triangles_of_the_quadratic_part_may_be_given(tmp_path):
    both = ALL_SECTIONS.replace("QUADOBJ", "QMATRIX").replace(
        "    X         Y            1.0\n", "    X         Y            1.0\n    Y         X            1.0\n"
    )
    assert_all_sections(read(tmp_path, both))
    assert_all_sections(read(tmp_path, ALL_SECTIONS.replace("QUADOBJ", "QSECTION COST")))


def test_a_file_that_minimizes_is_not_turned_around(tmp_path):
    problem = read(tmp_path, small(bounds=" MI BND X\n UP BND X -3\n FX BND Y 2", more="QUADOBJ\n X X 2"))
    assert (problem.sign, problem.offset) == (1, 0)
    assert linear_part(problem).tolist() == [1, 2]
    assert curvature(problem).tolist() == [[2, 0], [0, 0]]
    assert (problem.domain.lo.tolist(), problem.domain.hi.tolist()) == ([[-np.inf, 2]], [[-3, 2]])
    assert isinstance(read(tmp_path, small()).loss, gs.losses.Linear)
    assert read(tmp_path, "OBJSENSE\n    MAXIMIZE\n" + small()).sign == -1


def test_names_in_fixed_columns_may_have_blanks(tmp_path):
    text = (
        "NAME          BLANKS\nROWS\n N  COST\n L  LIM 1\nCOLUMNS\n"
        "    MY X      COST               1.0   LIM 1              1.0\n"
        "RHS\n    RHS       LIM 1              4.0\nENDATA\n"
    )
    problem = read(tmp_path, text)
    assert (problem.row_names, problem.column_names) == (["LIM 1"], ["MY X"])


def test_a_program_without_rows(tmp_path):
    text = "NAME T\nROWS\n N COST\nCOLUMNS\n X COST -1\nRHS\nBOUNDS\n UP BND X 3\nENDATA\n"
    problem = read(tmp_path, text)
    assert problem.row_names == []
    assert gs.solve(problem).mean == pytest.approx([3])


def written(rng, n, k):
    """A random program as the text of a file, and its arrays."""
    half, A = rng.normal(size=(n, n)).round(6), np.where(rng.random((k, n)) < 0.5, rng.normal(size=(k, n)).round(6), 0)
    Q, c, inside = half @ half.T + 0.1 * np.eye(n), rng.normal(size=n), rng.normal(size=n)
    kinds = rng.choice(list("LGE"), size=k)
    right = A @ inside + np.where(kinds == "L", 0.5, np.where(kinds == "G", -0.5, 0.0))
    low, high = inside - rng.exponential(size=n), inside + rng.exponential(size=n)
    lines = ["NAME RANDOM", "ROWS", " N COST", *(f" {kind} R{i}" for i, kind in enumerate(kinds)), "COLUMNS"]
    for j in range(n):
        lines += [f" X{j} COST {float(c[j])!r}", *(f" X{j} R{i} {float(A[i, j])!r}" for i in np.flatnonzero(A[:, j]))]
    lines += ["RHS", " RHS COST -2.5", *(f" RHS R{i} {float(value)!r}" for i, value in enumerate(right)), "BOUNDS"]
    for j in range(n):
        lines += [f" LO BND X{j} {float(low[j])!r}", f" UP BND X{j} {float(high[j])!r}"]
    lines += ["QUADOBJ", *(f" X{i} X{j} {float(Q[i, j])!r}" for i in range(n) for j in range(i, n)), "ENDATA", ""]
    lower, upper = np.where(kinds == "L", -np.inf, right), np.where(kinds == "G", np.inf, right)
    return "\n".join(lines), (Q, c, A, lower, upper, low, high)


@pytest.mark.parametrize("seed", range(5))
def test_random_programs_are_read_to_the_last_digit(tmp_path, seed):
    rng = np.random.default_rng(seed)
    text, (Q, c, A, lower, upper, low, high) = written(rng, n=8, k=6)
    problem = read(tmp_path, text)
    np.testing.assert_array_equal(curvature(problem), Q)
    np.testing.assert_array_equal(linear_part(problem), c)
    np.testing.assert_array_equal(entries(problem), A)
    np.testing.assert_array_equal(problem.duals.term.lower[0], lower)
    np.testing.assert_array_equal(problem.duals.term.upper[0], upper)
    np.testing.assert_array_equal(problem.domain.lo[0], low)
    np.testing.assert_array_equal(problem.domain.hi[0], high)
    x = rng.normal(size=8)
    assert problem.original_objective(x) == pytest.approx(x @ Q @ x / 2 + c @ x + 2.5)


def test_the_multiplier_of_a_named_row_is_its_price(tmp_path):
    """Minimize x^2 + y^2 with x + y >= 4 in a file that maximizes the negative."""
    text = "OBJSENSE\n MAX\n" + small(more="QUADOBJ\n X X -2\n Y Y -2").replace(" L R1", " G R1").replace(
        "COST 1", "COST 0"
    ).replace("COST 2", "COST 0")
    problem = read(tmp_path, text)
    solution = gs.solve(problem)
    assert problem.original_objective(solution.mean) == pytest.approx(-8)
    prices = dict(zip(problem.row_names, -solution.dual, strict=True))
    assert prices["R1"] == pytest.approx(4), "of minimizing"


REFUSED = {
    "integers": (
        small(columns=" M1 'MARKER' 'INTORG'\n X COST 1 R1 1\n M2 'MARKER' 'INTEND'\n Y COST 2 R1 1"),
        r"continuous; got 1 that are not, X \(integer\) first; use a mixed integer solver",
    ),
    "binary": (small(bounds=" BV BND X\n BV BND Y"), r"got 2 that are not, X \(integer\) first"),
    "semicontinuous": (small(bounds=" SC BND X 3"), "semicontinuous"),
    "quadratic constraints": (small(more="QCMATRIX R1\n X X 2"), "linear; got a section QCMATRIX"),
    "cones": (small(more="CSECTION K1 0.0 QUAD\n X\n Y"), "CSECTION"),
    "not convex": (small(more="QUADOBJ\n X X -2"), "positive semidefinite"),
    "crossed bounds": (
        small(bounds=" LO BND X 5\n UP BND X 2"),
        "must not exceed upper bounds; got 5 and 2 for column X",
    ),
    "repeated": (small(columns=" X COST 1 R1 1\n X R1 3"), r"every entry .* duplicate nonzero 3 in row .R1.: ignored"),
    "undefined": (small().replace("RHS R1", "RHS R7"), "R7"),
    "infinite bound": (small(bounds=" LO BND X 1e31"), "must be in QPS or MPS format; got .*lower bound of"),
    "no end": (
        small().replace("ENDATA", ""),
        "with ENDATA as its last line; got .*program.qps without it; get the whole",
    ),
    "no program": ("what is this", "must be in QPS or MPS format"),
    "empty": ("", "must be in QPS or MPS format"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path, case):
    text, message = REFUSED[case]
    with pytest.raises(gs.InputError, match=message):
        read(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(gs.InputError, match=r"must be a QPS or MPS file; got .*absent.qps"):
        gs.from_qps(tmp_path / "absent.qps")
    with pytest.raises(gs.InputError, match=r"ends in .gz must be compressed"):
        read(tmp_path, ALL_SECTIONS, "program.qps.gz")


@pytest.mark.parametrize("section", ["ROWS", "COLUMNS", "RHS", "RANGES", "BOUNDS", "QUADOBJ", "ENDATA"])
def test_files_that_are_cut_off(tmp_path, section):
    """Within the section, or before its end."""
    for end in (ALL_SECTIONS.index(f"\n{section}") + 20, ALL_SECTIONS.index(f"\n{section}")):
        if end < len(ALL_SECTIONS):
            with pytest.raises(gs.InputError, match="ENDATA as its last line"):
                read(tmp_path, ALL_SECTIONS[:end])


def test_the_end_may_be_followed_by_anything(tmp_path):
    assert_all_sections(read(tmp_path, ALL_SECTIONS.replace("ENDATA\n", "ENDATA  \r\nnotes\n")))


def test_compressed_files_that_are_damaged(tmp_path):
    path, whole = tmp_path / "program.qps.gz", gzip.compress(ALL_SECTIONS.encode())
    damaged = bytearray(whole)
    damaged[40] ^= 0xFF
    for content in (whole[:100], bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(gs.InputError, match=r"must be whole; got .*program.qps.gz"):
            gs.from_qps(path)


def test_errors_name_the_file_of_the_user_alone(tmp_path):
    for text in ("", "what is this", "ROWS\n N COST\nCOLUMNS\nENDATA\n", small(bounds=" XX BND X 3"), small("x" * 300)):
        with pytest.raises(gs.InputError, match=r"program.qps") as caught:
            read(tmp_path, text)
        assert "model.mps" not in str(caught.value)


def test_nothing_is_printed(tmp_path, capfd):
    read(tmp_path, ALL_SECTIONS)
    assert capfd.readouterr() == ("", "")


def test_highspy_may_be_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(ModuleNotFoundError, match=r"gs.from_qps needs highspy; got none installed; .*\[qps\]"):
        read(tmp_path, ALL_SECTIONS)
