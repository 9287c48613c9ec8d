"""Which site owns which rows, and the network of the sites."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, require, require_number
from gradslide._support.types import Array
from gradslide.fitting.sites import default_graph, local_network
from gradslide.network import Local, Network


@dataclass(frozen=True)
class Sites:
    """labels: of the sites, in the order of the agents. rows: the row numbers of each; none where
    it only passes on.
    """

    labels: Array
    rows: list[Array]
    network: Network


def sites_of(n: int, sites: Any, n_sites: Any, graph: Any) -> Sites:
    """The sites of n rows.

    sites: the label of each row's owner; None: blocks of rows in their order, as many as the graph
    has agents, or as `n_sites` says, or as there are rows. graph: a Graph, a network, or None. Its
    agents are the labels in the order of np.unique; where there are fewer labels than agents they
    must be the agents' numbers.
    """
    require_number("n_sites", n_sites, "for example n_sites=4", least=1, whole=True)
    network = None if graph is None else local_network(graph)
    if sites is None:
        m = min(int(n_sites), n) if network is None else network.m
        return Sites(np.arange(m), np.array_split(np.arange(n), m), network or Local(default_graph(m)))
    labels, owners = _owners(n, sites)
    network = network or Local(default_graph(len(labels)))
    if len(labels) < network.m and labels.dtype.kind in "iu" and labels.min() >= 0 and labels.max() < network.m:
        labels, owners = np.arange(network.m), labels[owners]
    require(
        len(labels) == network.m,
        "graph must have one agent for each site",
        f"{network.m} agents and {len(labels)} sites with rows",
        f"number the sites 0..{network.m - 1} where some may have no rows, or change the graph",
    )
    return Sites(labels, [np.flatnonzero(owners == i) for i in range(network.m)], network)


def _owners(n: int, sites: Any) -> tuple[Array, Array]:
    """The labels, sorted, and for each row the number of its own."""
    given = np.asarray(sites)
    require(
        given.shape == (n,),
        f"sites must name the owner of each row, {n} in all",
        f"shape {given.shape}",
        "give one label per row",
    )
    remedy = "give every row a label, all of one kind"
    missing = [label for label in given.tolist() if label is None or label != label]
    require(not missing, "sites must have no missing labels", f"{len(missing)} of them", remedy)
    try:
        labels, owners = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise InputError("sites must be labels that can be sorted", str(error), remedy) from None
    return labels, owners
