"""Public names that are imported on first use, in new processes: each name has one first use."""

import subprocess
import sys

import pytest

import gradslide as gs


def printed(program):
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("attempt", range(3))
def test_names_may_be_used_first_by_several_threads_at_once(attempt):
    program = """
import sys, threading
import gradslide as gs

sys.setswitchinterval(1e-5)
names = ("Graph", "solve", "Problem", "mixing", "losses", "schedules", "check_loss", "Costs")
barrier, errors = threading.Barrier(len(names)), []

def use(name):
    barrier.wait()
    try:
        thing = getattr(gs, name)
        [getattr(thing, public) for public in getattr(thing, "__all__", ())]
    except Exception as error:
        errors.append(f"{name}: {error!r}")

threads = [threading.Thread(target=use, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(errors)
"""
    assert printed(program) == "[]"


@pytest.mark.parametrize("path", ["methods", "theory", "engine", "graphs", "kernels", "losses.base", "network.local"])
def test_submodules_are_imported_on_first_use(path):
    program = f"import gradslide as gs; module = gs.{path}; import gradslide.{path} as same; print(module is same)"
    assert printed(program) == "True"


def test_what_is_no_public_submodule_is_no_attribute():
    program = """
import gradslide as gs

print([name for name in ("typo", "__main__", "methods.pds", "typo.typo", "") if hasattr(gs, name)])
"""
    assert printed(program) == "[]"


def test_all_public_names_are_imported_at_once():
    program = "from gradslide import *; import gradslide; print(sorted(set(gradslide.__all__) - set(globals())))"
    assert printed(program) == "[]"


WITHOUT = "import sys; sys.modules.update(cryptography=None, sklearn=None)\n"


def test_a_missing_extra_is_an_error_of_import_too():
    program = f"""{WITHOUT}
import gradslide as gs

for use in (lambda: gs.network.Peers, lambda: gs.sklearn):
    try:
        use()
    except gs.InputError as error:
        print(isinstance(error, ModuleNotFoundError), type(error.__cause__).__name__, error)
"""
    assert printed(program).splitlines() == [
        "True ModuleNotFoundError gs.network.Peers needs cryptography; got none installed; install gradslide[peers]",
        "True ModuleNotFoundError gradslide.sklearn needs scikit-learn; got none installed; "
        "in a checkout of gradslide: pip install '.[sklearn]'",
    ]


def test_tools_that_look_at_everything_do_so_without_the_extras():
    program = f"""{WITHOUT}
import inspect, pkgutil, pydoc
import gradslide as gs

members = dict(inspect.getmembers(gs.network))
modules = {{module.name for module in pkgutil.walk_packages(gs.__path__, "gradslide.")}}
print("MPI" in members, "Peers" in members, "Peers" in gs.network.__all__)
print("Local" in pydoc.render_doc(gs.network), {{"gradslide.network.peers", "gradslide.theory.schedules"}} <= modules)
"""
    assert printed(program).splitlines() == ["True False True", "True True"]


def test_names_of_extras_are_listed_where_these_are_installed():
    pytest.importorskip("cryptography")
    assert "Peers" in dir(gs.network)
