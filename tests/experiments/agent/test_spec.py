"""The file of an agent: what it may say, what is refused and how, and the user's own builder."""

import re
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.experiments.agent.build import Place, build_agent, build_place
from gradslide.experiments.agent.builder import BuilderFailed, built
from gradslide.experiments.agent.local import folders
from gradslide.experiments.agent.spec import AgentSpec, parse_agent, read_agent, template_text
from gradslide.experiments.regression import RegressionSpec
from gradslide.experiments.rows import read_rows
from gradslide.experiments.section import Section
from gradslide.experiments.spec import read_spec
from gradslide.network.peers.keys import make_key_pair
from gradslide.network.peers.neighbour import Neighbour

KEYS = {
    "top": 'version = 1\nname = "a"\nsecret_key = "a.secret"\nlisten = "tcp://127.0.0.1:5555"\n'
    'run = "trial"\ndiameter = 2',
    "neighbour": 'name = "b"\naddress = "tcp://127.0.0.1:5556"\npublic_key = "b.public"',
    "problem": 'builder = "mine.py:build"',
    "method": 'name = "pds"',
    "stop": "iterations = 5",
}
BUILDER = (
    "import gradslide as gs\n\ndef build():\n    return gs.losses.Quadratic([[2.0, 0.0], [0.0, 1.0]], [1.0, 1.0])\n"
)


def text_of(**changed):
    """The file above with some parts changed, or left out (None)."""
    parts = {**KEYS, **changed}
    top = parts.pop("top")
    tables = [f"[{name}]\n{content}\n" for name, content in parts.items() if content is not None]
    return "\n".join([top, *tables])


@pytest.fixture
def folder(tmp_path):
    """The folder of an agent: keys, the neighbour's public one, and a builder."""
    make_key_pair("a", tmp_path)
    make_key_pair("b", tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "b.public").rename(tmp_path / "b.public")
    (tmp_path / "mine.py").write_text(BUILDER)
    return tmp_path


def placed(folder, **changed):
    place = build_place(parse_agent(text_of(**changed), folder))
    place.check()
    return place


def made(folder, **changed):
    placed(folder, **changed)
    return build_agent(parse_agent(text_of(**changed), folder))


# The file


def test_the_template_says_what_it_means():
    spec = parse_agent(template_text(), Path("somewhere"))
    assert spec.name == "north"
    assert [(each.name, each.address is None) for each in spec.neighbours] == [("east", False), ("west", True)]
    assert spec.secret_key == Path("somewhere/north.secret")
    assert spec.output.dir == Path("somewhere/results")
    assert (spec.output.checkpoint, spec.output.checkpoint_seconds) == (True, 60.0)
    assert isinstance(spec.task, RegressionSpec)
    assert spec.task.table == "patients.csv"
    assert (spec.task.regression.family, spec.task.regression.label) == ("logistic", "ill")


def test_the_default_method_is_that_of_solve(folder):
    agent = made(folder, method=None, stop=None)
    assert agent._method == gs.Auto()
    assert agent._stop is None


# In a comment of the template: a key with its value, and what it means.
COMMENTED = re.compile(r"^# (\w+ = .*)$", re.MULTILINE)


def test_the_template_shows_every_default():
    """What is commented out before the tables is what holds then; and every key is there."""
    before, tables = template_text().split("\n[[neighbour]]", 1)
    defaults = COMMENTED.sub(r"\1", re.sub(r"^# (secure_sums|revoked) = .*$", "", before, flags=re.MULTILINE))
    assert parse_agent(f"{defaults}\n[[neighbour]]{tables}", Path()) == parse_agent(template_text(), Path())
    assert parse_agent(template_text(), Path()).output == parse_agent(text_of(), Path()).output
    shown = set(tomllib.loads(COMMENTED.sub(r"\1", before)))
    keys = {field.name for field in fields(AgentSpec)} - {"task", "folder", "neighbours", "output"}
    assert shown == keys | {"version"}


def test_the_template_shows_all_that_a_regression_takes():
    tables = COMMENTED.sub(r"\1", "[data]" + template_text().split("\n[data]")[1].split("\n[output]")[0])
    shown = tomllib.loads(re.sub(r"^(time|event) = .*$", "", tables, flags=re.MULTILINE))
    taken = {field.name for field in fields(gs.Regression)} - {"time", "event", "exposure"}
    # Those that a comment mentions, or that are for few.
    assert taken - {*shown["data"], *shown["model"]} == {"lasso", "intercept", "penalty_factors"}
    # What is for release takes no weights.
    given = re.sub(r"^for_release = .*$", "", tables, flags=re.MULTILINE)
    spec = parse_agent(template_text().split("\n[data]")[0] + "\n" + given, Path())
    assert spec.task.regression.levels == {"stage": ("I", "II", "III")}


def test_the_comment_about_builders_in_the_template_is_a_file_of_its_own(folder):
    (folder / "site.py").write_text(BUILDER)
    comment = template_text().split("# Instead of [data] and [model]")[1]
    lines = [line.removeprefix("#   ") for line in comment.splitlines() if line.startswith("#   ")]
    text = text_of(problem=None, method=None, stop=None) + "\n".join(line for line in lines if line[:1] != " ")
    agent = build_agent(parse_agent(text, folder))
    assert (agent._method, agent._stop.iterations) == (gs.Auto(), 5000)


def test_an_agent_is_built_from_its_file(folder):
    agent = made(folder)
    assert placed(folder).neighbours[0].public_key == (folder / "b.public").read_text().strip()
    assert (agent._problem.m, agent._problem.d, agent._problem.mu) == (1, 2, 0.0)
    assert isinstance(agent._method, gs.PDS)
    assert agent._stop == gs.Stop(iterations=5)


def test_a_public_key_may_stand_in_the_file_itself_or_have_the_neighbours_name(folder):
    public = (folder / "b.public").read_text().strip()
    for neighbour in (f'name = "b"\npublic_key = "{public}"', 'name = "b"'):
        assert placed(folder, neighbour=neighbour).neighbours[0].public_key == public


def test_a_secret_key_has_the_agents_name_unless_another_is_given(folder):
    top = re.sub("secret_key = .*", "", KEYS["top"])
    assert placed(folder, top=top).own == placed(folder).own


def test_neighbours_that_cannot_be_told_apart_are_told_of_failures_one_by_one(folder):
    """And an agent that is its own neighbour by mistake is not told at all."""
    own = placed(folder).own
    keys = {name: make_key_pair(name, folder / "others").public for name in "cdef"}

    def told(*neighbours):
        place = Place(own, None, [Neighbour(name, None, key) for name, key in neighbours])
        return [[each.name for each in group] for group in place.told_of_failures()]

    assert told(("c", keys["c"]), ("d", keys["d"])) == [["c", "d"]]
    assert told(("c", keys["c"]), ("d", keys["d"]), ("e", keys["c"])) == [["d"], ["c"], ["e"]]
    assert told(("c", keys["c"]), ("d", keys["d"]), ("d", keys["e"])) == [["c"], ["d"], ["d"]]
    assert told(("c", own.public)) == []


def test_settings_name_what_all_must_have_alike(folder):
    settings = made(folder, method='name = "pds"\nL = 3.0').settings
    assert settings.items() >= {"d": "2", "dtype": "float64", "mu": "0.0", "method": "PDS"}.items()
    assert settings["gradslide"] == ".".join(gs.__version__.split(".")[:2])
    other = made(folder, method='name = "pds"\nL = 4.0', stop="iterations = 6").settings
    assert {name for name in settings if settings[name] != other.get(name)} == {"method.L", "stop.iterations"}


def test_a_method_that_ends_by_itself_needs_no_stop(folder):
    assert made(folder, method='name = "auto"', stop=None)._stop is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"top": KEYS["top"].replace("= 1\n", "= 2\n", 1)}, "version of the spec must be 1; got 2"),
        ({"top": KEYS["top"].replace("diameter", "diametre")}, "got 'diametre'; did you mean 'diameter'"),
        ({"top": KEYS["top"] + "\nlissten = 1"}, "a key of .top level. must be one of .*did you mean 'listen'"),
        ({"top": KEYS["top"].replace('"trial"', '" "')}, "run must name the run"),
        ({"top": KEYS["top"].replace("diameter = 2", "diameter = 0")}, "diameter must be a whole number >= 1; got 0"),
        ({"top": KEYS["top"] + "\ndeadline = 0"}, "deadline must be > 0 and finite; got 0.0; 60 waits a minute"),
        ({"neighbour": None}, r"a spec needs a \[neighbour\] table"),
        ({"neighbour": None, "neigbour": 'name = "b"'}, r"a \[neighbour\] table.*is 'neigbour' meant to be it"),
        ({"problem": None, "probelm": KEYS["problem"]}, "got neither; is 'probelm' meant to be it"),
        ({"problem": None, "modell": 'family = "linear"'}, r"needs \[problem\], or \[data\] and \[model\]; got nei"),
        ({"neighbour": 'name = "c"'}, "a public key must be ed25519: .* got 'c.public'"),
        ({"neighbour": KEYS["neighbour"] + "\nadress = 1"}, "did you mean 'address'"),
        ({"problem": 'builder = "mine.py:build"\nmoo = 1.0'}, r"a key of \[problem\]"),
        ({"problem": "mu = 1.0"}, r"\[problem\] needs 'builder'"),
        ({"output": "checkpoint_seconds = -1"}, "checkpoint_seconds must be >= 0"),
        ({"output": "plot = true"}, r"a key of \[output\]"),
        ({"problem": 'builder = "mine.py:build"\nmu = -1.0'}, "mu must be >= 0"),
        (
            {"method": 'name = "pds"\nR = "theory"'},
            'R of agents .* must be a number: no agent sees what "theory" tak',
        ),
        ({"method": 'name = "pdss"'}, "did you mean 'pds'"),
        ({"stop": "objective = 1.0"}, "takes no objective: no agent sees all .* use gap or kkt"),
        ({"stop": "residual = 1.0\niterations = 5"}, "takes no residual: no agent sees all"),
        ({"stop": "iteratons = 5"}, "did you mean 'iterations'"),
        ({"stop": None}, "a spec needs a table 'stop'"),
        ({"neighbour": 'name = "b"\npublic_key = "c.public"'}, "a public key must be ed25519: .* got 'c.public'"),
        ({"neighbour": KEYS["neighbour"].replace("tcp://", "")}, "the address of b must be tcp://host:port"),
        (
            {"top": KEYS["top"].replace("a.secret", "c.secret")},
            "c.secret must hold a secret key, .* gradslide keys new",
        ),
        (
            {
                "top": "\n".join(line for line in KEYS["top"].splitlines() if "listen" not in line),
                "neighbour": 'name = "b"\npublic_key = "b.public"',
            },
            "this agent or its neighbour b must listen",
        ),
    ],
)
def test_mistakes_in_the_file_are_named(folder, changed, message):
    with pytest.raises(InputError, match=message):
        made(folder, **changed)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"AGENT.toml, which does not exist; .*gradslide agent --init"):
        read_agent(tmp_path / "AGENT.toml")


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX's")
def test_a_secret_that_others_can_read_is_refused(folder):
    (folder / "a.secret").chmod(0o644)
    with pytest.raises(InputError, match="must be for its owner alone; got mode 0644; run chmod 600"):
        made(folder)


# The builder


def test_a_builder_may_give_a_domain_and_ask_for_the_folder(folder):
    (folder / "mine.py").write_text(
        "import gradslide as gs\nfrom beside import MATRIX\n\n"
        "def build(folder, scale=1.0):\n"
        "    import late\n"
        "    assert (folder / 'mine.py').exists()\n"
        "    return gs.losses.Quadratic(MATRIX, [0.0]), gs.domains.L2Ball(late.RADIUS)\n"
    )
    (folder / "beside.py").write_text("MATRIX = [[1.0]]\n")
    (folder / "late.py").write_text("RADIUS = 3.0\n")
    before = list(sys.path)
    loss, domain, _ = built("mine.py:build", folder)
    assert loss.d == 1
    assert isinstance(domain, gs.domains.L2Ball)
    assert sys.path == before
    assert "mine" not in sys.modules


def test_a_builder_may_be_in_a_module(folder):
    (folder / "my_site_module.py").write_text(BUILDER)
    assert built("my_site_module:build", folder)[0].d == 2


def test_a_file_may_be_called_like_a_module_that_there_is(folder):
    (folder / "json.py").write_text(BUILDER)
    assert built("json.py:build", folder)[0].d == 2
    assert hasattr(sys.modules["json"], "dumps")


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("mine.py", BUILDER, "builder must name a file or module, and a function in it; got 'mine.py'"),
        ("other.py:build", BUILDER, "the builder's file must be there; got .*other.py, which is not"),
        ("no_such_module:build", BUILDER, "got no_such_module, which was not found"),
        ("../mine:build", BUILDER, "or in a .py file; got '../mine'"),
        ("mine.py:bild", BUILDER, "the function in builder, of mine.py, must be .* got 'bild'; did you mean 'build'"),
        ("mine.py:gs", BUILDER, "mine.py:gs must be a function; got module"),
        ("mine.py:build", "def build(path): pass", "must take no argument, or the folder; got path"),
        ("mine.py:build", "def build(): return 3", r"must return a loss, or \(loss, domain\), .*; got int 3"),
        (
            "mine.py:build",
            BUILDER.replace("return gs.losses", "return 1, gs.losses"),
            r"must return a loss, or \(loss, domain\), .*; got tuple",
        ),
        (
            "mine.py:build",
            "import gradslide as gs\ndef build(): return gs.losses.Quadratic([[1.0]], [0.0]), 'ball'",
            "got str 'ball'; for example gs.domains.L2Ball",
        ),
        (
            "mine.py:build",
            "import gradslide as gs\ndef build(): return gs.losses.LeastSquares([[1.0], [2.0]], [1, 2], agents=2)",
            "must return the loss of one agent; got 2 agents",
        ),
    ],
)
def test_mistakes_about_the_builder_are_named(folder, name, source, message):
    (folder / "mine.py").write_text(source)
    with pytest.raises(InputError, match=message):
        built(name, folder)


@pytest.mark.parametrize(
    ("source", "said", "line"),
    [
        ("x = 1\n1 / 0\n", "ZeroDivisionError", "line 2"),
        (
            "def build():\n    return helper()\n\ndef helper():\n    raise KeyError('age')\n",
            "KeyError: 'age'",
            "line 5",
        ),
        ("def build(:\n", "SyntaxError", "line 1"),
        ("import no_such_package\n", "ModuleNotFoundError", "line 1"),
        (
            "import gradslide as gs\ndef build():\n    return gs.losses.Logistic([[1.0]], [3])\n",
            "labels must be",
            "line 3",
        ),
    ],
)
def test_an_error_in_the_users_code_comes_with_its_traceback(folder, source, said, line):
    (folder / "mine.py").write_text(source)
    with pytest.raises(BuilderFailed, match=r"the builder mine.py:build failed") as raised:
        built("mine.py:build", folder)
    report = raised.value.report
    assert said in report
    assert line in report
    assert "mine.py" in report
    assert "builder.py" not in report, "our own frames say nothing to the user"


# What a network on loopback writes for its agents


@pytest.mark.parametrize("sparse", [False, True])
def test_an_agents_rows_come_back_as_they_were_written(tmp_path, sparse):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6, 3)) * (rng.random((6, 3)) < 0.5)
    features[:, 2] = 0.0
    table = {
        "loss": "huber",
        "delta": 0.5,
        "mu": 0.1,
        "domain": {"set": "l2_ball", "radius": 2.0},
        "penalty": {"kind": "l1", "weight": 0.1},
    }
    folders.write_rows(tmp_path, sp.csr_array(features) if sparse else features, {"targets": np.arange(6.0)}, table)
    loss, domain, _ = built("gradslide.experiments.agent.local.folders:build_from_rows", tmp_path)
    x = rng.normal(size=(1, 3))
    same = gs.losses.Huber(features, np.arange(6.0), delta=0.5)
    np.testing.assert_allclose(loss.gradient(x), same.gradient(x))
    assert isinstance(domain, gs.domains.L2Ball)
    np.testing.assert_allclose(domain.r(x), 0.1 * np.abs(x).sum(axis=1))


def test_the_spec_that_an_agent_gets_says_what_the_networks_spec_says(tmp_path):
    (tmp_path / "net.toml").write_text(
        'version = 1\n[data]\nname = "misfire"\nagents = 3\nrows = 30\n'
        '[problem]\nloss = "logistic"\nmu = 0.25\n[network]\ntopology = "path"\n'
        '[method]\nname = "auto"\n"a key" = true\nweights = [[0.5, 1], [2, inf]]\n'
        "[stop]\ngap = { relative = 1e-6 }\niterations = 5\n"
    )
    spec = read_spec(tmp_path / "net.toml")
    rows = read_rows(Section("data", spec.data), tmp_path, None)
    run = 'a "quoted" \\ name\nof two lines, \x7f ü'
    places = folders.lay_out(spec, run, gs.Graph.path(3), rows, tmp_path / "agents")
    middle = tomllib.loads((places[1] / folders.FILE).read_text(encoding="utf-8"))
    assert (middle["run"], middle["name"], middle["problem"]["mu"]) == (run, "agent-1", 0.25)
    assert (middle["method"], middle["stop"]) == (spec.method, spec.stop)
    assert {neighbour["name"] for neighbour in middle["neighbour"]} == {"agent-0", "agent-2"}
    assert parse_agent((places[1] / folders.FILE).read_text(encoding="utf-8"), places[1]).task.stop == spec.stop


# Names of columns


FEATURES = 'builder = "mine.py:build"\nfeatures = ["age", "smoker"]'


def test_names_of_columns_are_compared_as_hashes(folder):
    settings = made(folder, problem=FEATURES).settings
    other_order = made(folder, problem=FEATURES.replace('"age", "smoker"', '"smoker", "age"')).settings
    others = made(folder, problem=FEATURES.replace("smoker", "weight")).settings
    differ = [name for name in settings if settings[name] != other_order[name]]
    assert differ == ["order of features"]
    assert [name for name in settings if settings[name] != others[name]] == ["features", "order of features"]
    assert "smoker" not in str(settings)
    assert made(folder).settings["features"] == "not stated"


def test_names_of_columns_may_come_from_the_builder(folder):
    (folder / "mine.py").write_text(BUILDER.replace("[1.0, 1.0])", "[1.0, 1.0]), None, ['age', 'smoker']"))
    assert made(folder).settings["features"] != "not stated"
    assert made(folder).settings == made(folder, problem=FEATURES).settings
    with pytest.raises(InputError, match=r"got \('age',\) where the spec has \('smoker',\), as number 0"):
        made(folder, problem=FEATURES.replace('"age", "smoker"', '"smoker", "age"'))


def test_names_of_columns_must_fit_the_data(folder):
    """The file or the builder may state them. A loss of several classes has as many coefficients of each column."""
    rule = r"features must name every column: their number must be d = 2, or divide it for several classes; got 3 names"
    with pytest.raises(InputError, match=rule):
        made(folder, problem=FEATURES.replace('"smoker"', '"smoker", "weight"'))
    (folder / "mine.py").write_text(BUILDER.replace("[1.0, 1.0])", "[1.0, 1.0]), None, ['a', 'b', 'c']"))
    with pytest.raises(InputError, match=rule):
        made(folder)
    (folder / "mine.py").write_text(
        "import gradslide as gs\n\ndef build():\n    return gs.losses.Softmax([[1.0, 2.0]], [1], classes=3)\n"
    )
    assert made(folder, problem=FEATURES)._problem.d == 6


def test_there_is_a_warning_unless_the_builder_found_the_names_in_the_data(folder):
    assert "no names of features were stated" in made(folder)._warning
    assert "in the file were not checked against the data" in made(folder, problem=FEATURES)._warning
    (folder / "mine.py").write_text(BUILDER.replace("[1.0, 1.0])", "[1.0, 1.0]), None, ['age', 'smoker']"))
    assert made(folder)._warning == made(folder, problem=FEATURES)._warning == ""


@pytest.mark.parametrize("names", ["[1, 2]", '["age", "age"]', '"age"', "[]"])
def test_names_of_columns_are_different_texts(folder, names):
    with pytest.raises(InputError, match="features"):
        made(folder, problem=f'builder = "mine.py:build"\nfeatures = {names}')
