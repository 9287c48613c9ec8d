"""What the MPI network is made of: blocks that cut few edges, rows that travel, sums without an order, file parts."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.engine import checkpoints
from gradslide.network.collectives import exact_sum
from gradslide.network.mpi.exchange import layout_of
from gradslide.network.mpi.launch import declared_size
from gradslide.network.mpi.partition import _candidates, cut, partition

GRAPHS = {
    "path": gs.Graph.path(40),
    "grid": gs.Graph.grid(8, 8),
    "random": gs.Graph.random(60, max_degree=6, seed=2),
    "complete": gs.Graph.complete(12),
    "geometric": gs.Graph.geometric(80, seed=4),
}


# ---- blocks


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 12])
def test_blocks_are_nearly_equal_and_never_empty(name, count):
    graph = GRAPHS[name]
    sizes = np.bincount(partition(graph, count), minlength=count)
    assert len(sizes) == count
    assert sizes.min() >= 1
    assert sizes.max() <= graph.m / count * 1.05 + 2


def test_few_edges_are_cut_though_the_agents_are_numbered_at_random():
    rng = np.random.default_rng(0)
    graph = GRAPHS["grid"]
    number = rng.permutation(graph.m)
    shuffled = gs.Graph.from_edges(graph.m, number[graph.edges])
    in_order = np.arange(graph.m) * 4 // graph.m
    assert cut(shuffled, partition(shuffled, 4)) <= 20
    assert cut(shuffled, in_order) > 60


def test_without_metis_blocks_follow_an_order_in_which_neighbours_are_close(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pymetis", None)
    rng = np.random.default_rng(1)
    graph = gs.Graph.from_edges(40, rng.permutation(40)[GRAPHS["path"].edges])
    assert len(list(_candidates(graph, 4))) == 2
    assert cut(graph, partition(graph, 4)) == 3


# ---- rows that travel


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_only_rows_that_a_neighbour_elsewhere_needs_travel(name, count):
    graph = GRAPHS[name]
    owner = partition(graph, count)
    layouts = [layout_of(graph, owner, rank) for rank in range(count)]
    everybody = np.concatenate([layout.agents for layout in layouts])
    assert sorted(everybody.tolist()) == list(range(graph.m))
    assert len({layout.borders for layout in layouts}) == 1
    assert all([v for u, v in layouts[0].borders if u == rank] == list(layouts[rank].outgoing) for rank in range(count))
    for rank, layout in enumerate(layouts):
        links = graph.adjacency[layout.agents]
        elsewhere = [np.setdiff1d(row.indices, layout.agents) for row in links]
        assert all(len(others) == 0 for others in elsewhere[: layout.interior])
        assert all(len(others) > 0 for others in elsewhere[layout.interior :])
        assert sorted(layout.ghosts.tolist()) == sorted(set(np.concatenate([[], *elsewhere]).astype(int).tolist()))
        for other, agents in layout.incoming.items():
            assert np.array_equal(agents, layouts[other].outgoing[rank])


# ---- sums


def split_sum(values, pieces):
    """`exact_sum` over processes that have a piece each, one of them after the other."""
    sizes = np.max([np.max(np.abs(piece), axis=0, initial=0.0) for piece in pieces], axis=0)
    added = []
    for piece in pieces:
        exact_sum(piece, len(values), lambda own: sizes, lambda sums: added.append(sums) or sums)
    total = np.sum(added, axis=0)
    return exact_sum(pieces[0], len(values), lambda own: sizes, lambda sums: total)


@pytest.mark.parametrize("scale", [1e-300, 1e-5, 1.0, 1e12])
def test_sums_do_not_depend_on_order_or_pieces(scale):
    rng = np.random.default_rng(3)
    values = scale * rng.normal(size=(101, 4)) * 10.0 ** rng.integers(-12, 12, size=(101, 4))
    expected = exact_sum(values, 101, np.asarray, np.asarray)
    assert np.any(np.sum(values, axis=0) != np.sum(values[::-1], axis=0)), "plain sums do depend on it"
    for _ in range(20):
        shuffled = values[rng.permutation(101)]
        pieces = np.split(shuffled, np.sort(rng.integers(1, 101, size=3)))
        assert np.array_equal(split_sum(shuffled, pieces), expected)


def test_sums_are_as_good_as_exact_ones():
    rng = np.random.default_rng(4)
    values = rng.normal(size=(1000, 5)) * 10.0 ** rng.integers(-8, 8, size=(1000, 5))
    values[500:] = -values[:500] * (1 + 1e-13)
    exact = [math.fsum(column) for column in values.T]
    largest = np.max(np.abs(values), axis=0)
    found = exact_sum(values, 1000, np.asarray, np.asarray)
    assert np.all(np.abs(found - exact) <= 1e-20 * largest + 1e-16 * np.abs(exact))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e308])
def test_what_is_not_finite_stays_so(odd):
    values = np.ones((7, 3))
    values[4, 1] = odd
    found, plain = exact_sum(values, 7, np.asarray, np.asarray), np.sum(values, axis=0)
    np.testing.assert_array_equal(found, plain)


def test_sums_leave_room_for_many_large_values():
    values = np.full((5000, 2), np.nextafter(1.0, 0.0))
    values[:, 1] *= np.linspace(0.9, 1.0, 5000)
    rng = np.random.default_rng(5)
    expected = exact_sum(values, 5000, np.asarray, np.asarray)
    for _ in range(5):
        assert np.array_equal(exact_sum(values[rng.permutation(5000)], 5000, np.asarray, np.asarray), expected)
    assert expected[0] == math.fsum(values[:, 0])


def test_a_column_that_is_not_finite_spoils_no_other():
    rng = np.random.default_rng(6)
    values = rng.normal(size=(200, 3)) * 10.0 ** rng.integers(-9, 9, size=(200, 3))
    values[7, 1] = np.nan
    found = [exact_sum(values[rng.permutation(200)], 200, np.asarray, np.asarray) for _ in range(8)]
    assert all(np.array_equal(each[[0, 2]], found[0][[0, 2]]) for each in found)
    assert all(np.isnan(each[1]) for each in found)


def test_sums_keep_their_precision_and_shape():
    assert exact_sum(np.ones((5, 2), dtype=np.float32), 5, np.asarray, np.asarray).dtype == np.float32
    assert exact_sum(np.ones(5), 5, np.asarray, np.asarray).shape == ()
    assert exact_sum(np.zeros((5, 2)), 5, np.asarray, np.asarray).tolist() == [0.0, 0.0]
    assert exact_sum(np.zeros((0, 3)), 5, np.asarray, np.asarray).tolist() == [0.0, 0.0, 0.0]


def test_a_sum_of_rows_without_columns_has_none():
    for shape in [(5, 0), (5, 2, 0), (5, 0, 2)]:
        found = exact_sum(np.ones(shape, dtype=np.float32), 5, np.asarray, np.asarray)
        assert (found.shape, found.dtype) == (shape[1:], np.float32)


# ---- checkpoints in parts


def write_part(path, iteration, rank, size):
    checkpoints.part_path(path, iteration, rank, size).write_bytes(b"x")


def test_the_newest_iteration_is_the_last_of_which_all_parts_are_there(tmp_path):
    path = tmp_path / "run.npz"
    assert checkpoints.newest_iteration(path) is None
    for rank in range(3):
        write_part(path, 10, rank, 3)
    write_part(path, 20, 0, 3)
    write_part(path, 20, 2, 3)
    assert checkpoints.newest_iteration(path) == 10
    assert [part.name for part in checkpoints.part_paths(path, 10)] == [f"run.10.{rank}-of-3.npz" for rank in range(3)]
    write_part(path, 20, 1, 3)
    assert checkpoints.newest_iteration(path) == 20


def test_the_last_two_are_kept_and_those_of_other_sizes_go_when_they_are_older(tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(b"x")
    write_part(path, 5, 0, 2)
    write_part(path, 5, 1, 2)
    for iteration in (10, 20, 30):
        for rank in range(3):
            write_part(path, iteration, rank, 3)
            checkpoints.remove_old_parts(path, iteration, rank, 3)
    assert sorted(other.name for other in tmp_path.iterdir()) == sorted(
        f"run.{iteration}.{rank}-of-3.npz" for iteration in (20, 30) for rank in range(3)
    )


def test_what_a_run_that_was_killed_left_behind_is_not_taken_for_its_successors(tmp_path):
    """The first process had written 30, the second had not: the next run goes on from 20, and is killed as well."""
    path = tmp_path / "run.npz"
    for iteration, rank in ((10, 0), (10, 1), (20, 0), (20, 1), (30, 0)):
        write_part(path, iteration, rank, 2)
    for rank in range(2):
        write_part(path, 25, rank, 2)
        checkpoints.remove_old_parts(path, 25, rank, 2)
    write_part(path, 28, 0, 2)
    assert checkpoints.newest_iteration(path) == 25
    # A run that starts anew, with another number of processes.
    for iteration in (3, 6):
        for rank in range(3):
            write_part(path, iteration, rank, 3)
            checkpoints.remove_old_parts(path, iteration, rank, 3)
    assert checkpoints.newest_iteration(path) == 6
    path.write_bytes(b"x")
    checkpoints.remove_old_parts(path, 0, 0, 1)
    assert checkpoints.newest_iteration(path) == -1
    assert not checkpoints.find_parts(path)


def test_parts_of_two_runs_are_not_mixed_and_missing_ones_are_named(tmp_path):
    files = [({"agents": [agent], "run": {"R": agent}}, {"state.x": np.zeros((1, 1))}) for agent in range(2)]
    with pytest.raises(InputError, match="parts of a checkpoint must be of one run"):
        checkpoints.merge_parts(files, [0, 1])
    with pytest.raises(InputError, match="not all of iteration 7"):
        checkpoints.part_paths(tmp_path / "run.npz", 7)


def test_rows_come_from_whichever_part_has_them():
    files = [
        ({"agents": [4, 0]}, {"state.x": np.array([[4.0], [0.0]]), "memory.1": np.array([7.0])}),
        ({"agents": [2, 1, 3]}, {"state.x": np.array([[2.0], [1.0], [3.0]]), "memory.1": np.array([7.0])}),
    ]
    _, arrays = checkpoints.merge_parts(files, [3, 0, 4])
    assert arrays["state.x"].tolist() == [[3.0], [0.0], [4.0]]
    assert arrays["memory.1"].tolist() == [7.0]
    with pytest.raises(InputError, match="none of agent 9"):
        checkpoints.merge_parts(files, [3, 9])


def test_arrays_may_have_the_rows_of_data():
    """Agent 1 has two rows, others have one: of arrays in the first part nobody can tell which rows they have."""
    files = [
        ({"agents": [4, 0], "rows": [1, 1]}, {"state.x": np.array([[4], [0]]), "state.scores": np.array([40, 0])}),
        (
            {"agents": [2, 1, 3], "rows": [1, 2, 1]},
            {"state.x": np.array([[2], [1], [3]]), "state.scores": np.array([20, 10, 11, 30])},
        ),
    ]
    for agents, scores in (([3, 0, 1, 4], [30, 0, 10, 11, 40]), ([0, 4], [0, 40]), ([1, 2], [10, 11, 20])):
        for some in (files, files[::-1]):
            _, arrays = checkpoints.merge_parts(some, agents)
            assert arrays["state.x"].ravel().tolist() == agents
            assert arrays["state.scores"].tolist() == scores


# ---- launchers


@pytest.mark.parametrize(
    ("environment", "size"),
    [
        ({}, 0),
        ({"PMI_SIZE": "4", "PMI_RANK": "1"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "3"}, 3),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 8),
        ({"SLURM_STEP_NUM_TASKS": "1"}, 0),
        ({"GRADSLIDE_PROCESSES": "1"}, 1),
        ({"SLURM_NTASKS": "8"}, 0),
        ({"GRADSLIDE_PROCESSES": "2", "PMI_SIZE": "2"}, 2),
        ({"PMI_SIZE": "many"}, 0),
    ],
)
def test_launchers_are_recognised(environment, size):
    assert declared_size(environment) == size


def test_the_library_works_without_mpi_until_it_is_asked_for(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    with pytest.raises(InputError, match=r"gradslide\[mpi-local\]"):
        gs.network.MPI(gs.Graph.ring(4))


def test_weights_are_what_a_network_combines():
    graph = GRAPHS["random"]
    v = np.random.default_rng(0).normal(size=(graph.m, 3))
    assert np.array_equal(gs.network.Local(graph).combine(v, graph.laplacian), sp.csr_array(graph.laplacian) @ v)
