"""Public names that are imported on first use, in new processes: each name has one first use."""

import subprocess
import sys

import pytest


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
