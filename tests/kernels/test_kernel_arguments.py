"""What kernels for a GPU have in common, as far as it needs none."""

import math

import numpy as np
import pytest

from gradslide.kernels import device_mixing
from gradslide.kernels.device import parts
from gradslide.methods.gossip.sums import Known, Sums, Tally


@pytest.mark.parametrize("number", [0.0, 1.0, 0.1, 1 - 1e-9, 1e18, 1e19, 1e-19, -1e40, 1e300, 5e-324, -3e-200, 1e-310])
def test_numbers_are_passed_in_three_of_single_precision(number):
    high, low, exponent = parts(number)
    assert all(each == np.float32(each) for each in (high, low, exponent))
    assert math.isclose((high + low) * np.exp2(exponent), number, rel_tol=2**-48)


@pytest.mark.parametrize("number", [math.inf, -math.inf])
def test_infinity_is_passed_as_it_is(number):
    assert parts(number) == (number, 0.0, 0.0)


def test_kernels_know_the_order_of_fields():
    """They cannot import the records: these are above them."""
    assert (len(Sums._fields) - 2, len(Sums._fields)) == device_mixing.SUMS
    assert Sums._fields[-2:] == ("drift", "noise")
    assert Known._fields == ("value_under", "value_before", "conjugate_bar", "share", "r_bar", "r_before", "y")
    assert Tally._fields == ("sums", "conjugate", "reach", "conjugate_bar")
