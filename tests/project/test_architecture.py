"""Rules that the layout keeps: who may import what, what importing costs, and what is shipped."""

import ast
import inspect
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

import gradslide as gs

PACKAGE = Path(gs.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]


def imported(tree):
    """The modules that a file imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def called(tree):
    """The names of the functions that a file calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def roots(path):
    return {name.split(".")[0] for name in imported(tree_of(path))}


def test_the_scans_see_what_they_look_for():
    tree = ast.parse("def f():\n    import zmq.asyncio\n    from mpi4py import MPI\n    x.open(1)\n    print(2)\n")
    assert {name.split(".")[0] for name in imported(tree)} == {"zmq", "mpi4py"}
    assert set(called(tree)) == {"open", "print"}
    assert len(FILES) > 40


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_only_the_network_communicates(path):
    folders = path.relative_to(PACKAGE).parts[:-1]
    for module, home in (("mpi4py", "mpi"), ("zmq", "peers")):
        assert module not in roots(path) or folders == ("network", home)
    if "network" not in folders:
        assert "socket" not in roots(path)
    # Whole runs side by side are no communication of agents.
    if not {"network", "parallel"} & set(folders):
        assert "multiprocessing" not in roots(path)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_only_kernels_are_compiled(path):
    if path.parent.name != "kernels":
        assert not roots(path) & {"numba", "llvmlite", "triton"}


@pytest.mark.parametrize("path", sorted((PACKAGE / "methods").rglob("*.py")), ids=lambda path: path.name)
def test_methods_never_print_time_open_or_measure(path):
    tree = tree_of(path)
    assert not set(called(tree)) & {"print", "open", "input", "perf_counter", "monotonic", "time", "observe"}
    assert not roots(path) & {"time", "logging", "rich", "pathlib", "os"}


# From the lowest layer to the highest: a package imports from its own layer and from those below it, nowhere else.
LAYERS = [
    {"_support", "_version"},
    {"graphs", "results", "kernels", "domains", "losses", "data"},
    {"problems"},
    {"network", "oracles"},
    {"theory"},
    {"methods"},
    {"engine"},
    {"sklearn", "experiments"},
    {"report"},
    {"cli"},
]
LAYER = {package: number for number, packages in enumerate(LAYERS) for package in packages}


def modules_imported(path):
    """Modules of the library that a file imports anywhere in it, lazily and for types included."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "gradslide")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gradslide":
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else node.module


def module_of(path):
    parts = ("gradslide", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_dependencies_point_downwards(path):
    package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if package in ("__init__", "__main__"):
        return
    for module in modules_imported(path):
        assert module != "gradslide", "import from where a name is defined"
        assert LAYER[module.split(".")[1]] <= LAYER[package], module


def test_there_are_no_import_cycles():
    graph = {module: set(modules_imported(path)) - {module} for module, path in MODULES.items()}
    while leaves := [module for module, needs in graph.items() if not needs & graph.keys()]:
        for module in leaves:
            del graph[module]
    assert not graph


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_nothing_is_pickled(path):
    tree = tree_of(path)
    assert not roots(path) & {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


def test_importing_the_library_imports_nothing_heavy():
    heavy = [
        "networkx",
        "numba",
        "rich",
        "matplotlib",
        "pandas",
        "sklearn",
        "torch",
        "jax",
        "plotly",
        "http.server",
        "scipy.optimize",
        "scipy.sparse.linalg",
        "scipy.spatial",
        "typer",
        "click",
        "mpi4py",
        "pymetis",
        "zmq",
    ]
    code = f"import gradslide, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_files_say_what_they_are_for(path):
    assert ast.get_docstring(tree_of(path))


@pytest.mark.parametrize("name", [name for name in gs.__all__ if name != "__version__"])
def test_public_names_are_documented(name):
    thing = getattr(gs, name)
    assert (inspect.getdoc(thing) or "").strip()
    if isinstance(thing, type):
        assert thing.__doc__, "a docstring of its own, not that of a base class"
    if inspect.ismodule(thing):
        for member in getattr(thing, "__all__", []):
            assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"


def test_all_is_sorted_and_complete():
    assert sorted(gs.__all__) == sorted(set(gs.__all__))
    public = {name for name, value in vars(gs).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public <= set(gs.__all__)


def test_types_and_the_main_job_are_shipped():
    files = resources.files("gradslide")
    assert files.joinpath("py.typed").is_file()
    assert files.joinpath("experiments", "misfire.toml").is_file()
