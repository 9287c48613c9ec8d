"""Sessions of networks around other ones."""

import copy

import pytest

import gradslide as gs


def test_sessions_of_wrappers_can_be_copied():
    session = gs.network.Lossy(gs.Graph.ring(5), 0.1).session
    copied = copy.copy(session)
    assert (copied.rank, copied.size, copied.sees_all) == (session.rank, session.size, session.sees_all)
    copied.begin()
    with pytest.raises(AttributeError, match="_posted"):
        _ = copied._posted
