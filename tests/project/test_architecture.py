"""Rules that the layout keeps: who may import what, what importing costs, and what is shipped."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path

import pytest

import gradslide as gs

PACKAGE = Path(gs.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = Path(__file__).parents[1]


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


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def roots(path):
    return {name.split(".")[0] for name in imported(tree_of(path))}


def offenders(offends, files=FILES):
    """The files that break a rule, by their paths in the package."""
    return [str(path.relative_to(PACKAGE)) for path in files if offends(path)]


def test_the_scans_see_what_they_look_for():
    tree = ast.parse("def f():\n    import zmq.asyncio\n    from mpi4py import MPI\n    x.open(1)\n    print(2)\n")
    assert {name.split(".")[0] for name in imported(tree)} == {"zmq", "mpi4py"}
    assert set(called(tree)) == {"open", "print"}
    assert len(FILES) > 40
    assert allows_pickle(ast.parse("load(path, allow_pickle=True)"))
    assert not allows_pickle(ast.parse("load(path, allow_pickle=False)"))
    assert offenders(lambda path: "numpy" in roots(path))


def test_only_the_network_communicates():
    def offends(path):
        folders = path.relative_to(PACKAGE).parts[:-1]
        allowed = {"mpi4py": folders == ("network", "mpi"), "cryptography": folders == ("network", "peers")}
        allowed["socket"] = "network" in folders
        # Whole runs side by side are no communication of agents.
        allowed["multiprocessing"] = bool({"network", "parallel"} & set(folders))
        return any(not may and module in roots(path) for module, may in allowed.items())

    assert offenders(offends) == []


def test_only_kernels_are_compiled():
    assert offenders(lambda path: path.parent.name != "kernels" and roots(path) & {"numba", "llvmlite", "triton"}) == []


def test_methods_never_print_time_open_or_measure():
    forbidden = {"print", "open", "input", "perf_counter", "monotonic", "time", "observe"}
    files = [path for path in FILES if (PACKAGE / "methods") in path.parents]
    assert len(files) > 20
    assert offenders(lambda path: set(called(tree_of(path))) & forbidden, files) == []
    assert offenders(lambda path: roots(path) & {"time", "logging", "rich", "pathlib", "os"}, files) == []


# From the lowest layer to the highest: a package imports from its own layer and from those below it, nowhere else.
LAYERS = [
    {"_support", "_version"},
    {"graphs", "results", "kernels", "programs", "domains", "losses", "data", "regression"},
    {"problems"},
    {"network", "oracles"},
    {"theory"},
    {"methods"},
    {"engine"},
    {"fitting"},
    {"sklearn", "experiments", "interfaces"},
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


def test_dependencies_point_downwards():
    upwards = []
    for path in FILES:
        package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        # Modules at the root are public names and public paths.
        if path.parent == PACKAGE and package != "_version":
            continue
        for module in modules_imported(path):
            # "gradslide" itself: names are imported from where they are defined.
            if module == "gradslide" or LAYER[module.split(".")[1]] > LAYER[package]:
                upwards += [(module_of(path), module)]
    assert upwards == []


def test_there_are_no_import_cycles():
    graph = {module: set(modules_imported(path)) - {module} for module, path in MODULES.items()}
    while leaves := [module for module, needs in graph.items() if not needs & graph.keys()]:
        for module in leaves:
            del graph[module]
    assert not graph


def allows_pickle(tree):
    return any(
        not (isinstance(node.value, ast.Constant) and node.value.value is False)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle"
    )


def test_nothing_is_pickled():
    pickles = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    assert offenders(lambda path: roots(path) & pickles) == []
    assert offenders(lambda path: allows_pickle(tree_of(path))) == []


def test_numpy_is_imported_before_its_modules():
    """Else threads that import a module of NumPy while another one imports NumPy find it incomplete."""

    def offends(path):
        names = list(imported(tree_of(path)))
        first = next((number for number, name in enumerate(names) if name.startswith("numpy.")), None)
        return first is not None and "numpy" not in names[:first]

    assert offenders(offends) == []


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
        "cryptography",
    ]
    # Without Peers, which needs cryptography.
    code = (
        "import gradslide as gs, sys; print('numpy' in sys.modules); "
        "names = [getattr(gs, name) for name in gs.__all__]; "
        "names = [getattr(gs.network, name) for name in gs.network.__all__ if name != 'Peers']; "
        "names = [getattr(part, name) for part in (gs.losses, gs.domains, gs.oracles) for name in part.__all__]; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["False", "[]", ""], done.stderr


def test_files_say_what_they_are_for():
    assert offenders(lambda path: not ast.get_docstring(tree_of(path))) == []


def test_public_names_are_documented():
    things = {name: getattr(gs, name) for name in gs.__all__ if name != "__version__"}
    for name, module in [(name, thing) for name, thing in things.items() if inspect.ismodule(thing)]:
        things |= {f"{name}.{member}": getattr(module, member) for member in getattr(module, "__all__", [])}
    assert [name for name, thing in things.items() if not (inspect.getdoc(thing) or "").strip()] == []
    # A docstring of its own, not that of a base class.
    assert [name for name, thing in things.items() if isinstance(thing, type) and not thing.__doc__] == []


def imports_for_types(path):
    """The names that a file imports under TYPE_CHECKING, and the modules from which it does."""
    (block,) = [node for node in tree_of(path).body if isinstance(node, ast.If)]
    return {alias.name: node.module for node in block.body for alias in node.names}


def test_type_checkers_see_the_names_that_are_imported_on_first_use():
    lazy = {module: path for module, path in MODULES.items() if "lazy_names" in called(tree_of(path))}
    assert {"gradslide", "gradslide.losses", "gradslide.methods"} <= set(lazy)
    for module, path in lazy.items():
        package = importlib.import_module(module)
        homes = imports_for_types(path)
        assert package.__all__ == sorted(homes)
        assert dir(package) == sorted(homes)
        for name, home in homes.items():
            importlib.import_module(home)
            assert getattr(package, name) is getattr(sys.modules[home], name)
        with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'typo'"):
            package.typo  # noqa: B018


PUBLIC_PATHS = ("compressors", "coupling", "guarantees", "mixing", "reference", "schedules", "terms")


def test_modules_by_their_public_path_are_imported_on_first_use():
    code = (
        "import sys, gradslide; paths = [name for name in sys.modules if name.startswith('gradslide')]; "
        "from gradslide.schedules import theorem_1; import gradslide.schedules; "
        "print('gradslide.theory.schedules' in paths, gradslide.schedules is sys.modules['gradslide.schedules'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False True", done.stderr


@pytest.mark.parametrize("name", PUBLIC_PATHS)
def test_modules_by_their_public_path_are_the_modules_themselves(name):
    path = f"gradslide.{name}"
    code = (
        f"import importlib.util, sys; spec = importlib.util.find_spec({path!r}); from {path} import *; "
        f"import gradslide; module = importlib.import_module({path!r}); "
        f"print(spec.name, module is gradslide.{name}, module is sys.modules[module.__name__], "
        f"[each for each in getattr(module, '__all__', dir(module)) if each[0] != '_' and each not in globals()])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == f"{path} True True []", done.stderr


def test_code_that_looks_at_all_modules_imports_nothing():
    code = (
        "import sys, gradslide\n"
        "for module in sys.modules.values():\n    getattr(module, '__warningregistry__', None)\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr


def test_types_and_the_main_job_are_shipped():
    files = resources.files("gradslide")
    assert files.joinpath("py.typed").is_file()
    assert files.joinpath("experiments", "misfire.toml").is_file()


def test_every_helper_of_the_tests_is_used():
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    helpers = [path for path in texts if path.parent.name == "helpers"]
    assert len(helpers) > 10
    names = {path: re.compile(rf"\b{path.stem}\b") for path in helpers}
    others = {helper: [text for path, text in texts.items() if path != helper] for helper in helpers}
    assert [path.name for path in helpers if not any(names[path].search(text) for text in others[path])] == []


def test_tests_mirror_the_package():
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    packages = {path.parent.relative_to(PACKAGE) for path in FILES}
    spanning = {Path(name) for name in ("chaos", "equivalence", "examples", "fuzz", "project", "theorems")}
    assert sorted(map(str, folders - packages - spanning)) == []
