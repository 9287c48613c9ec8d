"""The dry run of an agent: what is wrong is found before anybody waits."""

import socket

import pytest
from specs import exit_code

from gradslide.experiments.agent.check import checks
from gradslide.experiments.agent.spec import read_agent
from gradslide.network.peers.keys import make_key_pair
from gradslide.network.peers.neighbour import free_addresses, host_and_port

AGENT = """
version = 1
name = "north"
run = "trial"
listen = "{own}"
neighbour = [{{ name = "east", address = "{east}" }}, {{ name = "west" }}]
{more}
[data]
table = "patients.csv"
label = "ill"
minimum_rows = 2
[model]
family = "logistic"
"""
TABLE = "age,ill\n20,0\n30,1\n40,0\n50,1\n"


@pytest.fixture
def agent(tmp_path):
    """A folder, and what writes its file."""
    for name in ("north", "east", "west"):
        make_key_pair(name, tmp_path)
    (tmp_path / "patients.csv").write_text(TABLE)
    own, east = free_addresses(2)

    def write(more=""):
        (tmp_path / "AGENT.toml").write_text(AGENT.format(own=own, east=east, more=more))
        return {each.what: each for each in checks(read_agent(tmp_path / "AGENT.toml"))}

    return tmp_path, own, east, write


def test_all_is_fine_but_for_neighbours_that_are_not_there_yet(agent):
    _, own, east, write = agent
    found = write()
    assert [each.verdict for each in found.values()] == ["fine", "fine", "fine", "fine", "not yet", "fine"]
    assert "Logistic regression over tables, 1 column" in found["data"].text
    assert found["listen"].text == f"{own} is free"
    assert "it may not be started yet" in found["neighbour east"].text
    with socket.create_server(host_and_port(east)):
        assert write()["neighbour east"].text == f"something listens at {east}"


def test_what_is_wrong_is_found(agent):
    folder, own, _, write = agent
    (folder / "patients.csv").write_text(TABLE.replace("ill", "sick"))
    found = write()
    assert found["data"].is_fine is False
    assert "which has no 'ill'" in found["data"].text
    (folder / "east.public").unlink()
    assert "a public key must be" in write()["keys"].text
    with socket.create_server(host_and_port(own)):
        assert write()["listen"].is_fine is False


def test_a_revoked_key_is_found(agent):
    folder, _, _, write = agent
    key = (folder / "west.public").read_text().strip()
    assert f"no agent may have a key that was revoked; got {key}" in write(f'revoked = ["{key}"]')["keys"].text


def test_the_command(agent, capsys):
    folder, _, _, write = agent
    write()
    assert exit_code("agent", folder / "AGENT.toml", "--check") == 0
    assert "neighbour west" in capsys.readouterr().out
    assert not (folder / "results").exists()
    (folder / "patients.csv").unlink()
    assert exit_code("agent", folder / "AGENT.toml", "--check") == 1
    assert "WRONG" in capsys.readouterr().out
