"""Old names of members of networks."""

import numpy as np
import pytest

import gradslide as gs
from gradslide import network

GRAPH = gs.Graph.ring(5)
NETWORKS = {"local": network.Local, "lossy": lambda graph: network.Lossy(graph, 0.1)}


@pytest.mark.parametrize("name", NETWORKS)
def test_old_names_work_and_name_the_new_ones(name):
    net, v = NETWORKS[name](GRAPH), np.ones((5, 2))
    with pytest.warns(DeprecationWarning, match=r"network\.place is deprecated: use network\.session\.rank"):
        assert net.place == (0, 1)
    with pytest.warns(DeprecationWarning, match=r"network\.post is deprecated: use network\.start_reduce"):
        net.post(v, "max")
    for _ in range(GRAPH.diameter):
        net.combine(v, GRAPH.laplacian)
    with pytest.warns(DeprecationWarning, match=r"network\.arrived is deprecated: use network\.completed"):
        np.testing.assert_array_equal(net.arrived(), [np.ones(2)])
    with pytest.warns(DeprecationWarning, match=r"network\.exchange_size .* network\.costs\.exchange_floats"):
        assert net.exchange_size(v) == net.costs.exchange_floats(v) == 20
    with pytest.warns(DeprecationWarning, match=r"network\.aside .* network\.session\.uncounted"):
        assert isinstance(net.aside(), network.Local)


def test_other_names_are_unknown():
    with pytest.raises(AttributeError, match="'Local' object has no attribute 'posted'"):
        _ = network.Local(GRAPH).posted
