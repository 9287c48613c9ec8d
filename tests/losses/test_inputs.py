"""Data that losses refuse: the remedy in the error works."""

import decimal

import numpy as np
import pytest
from error_messages import check_message

import gradslide as gs

FEATURES, LABELS = np.arange(8.0).reshape(4, 2), np.array([1, -1, 1, -1])
pandas = pytest.importorskip("pandas")


def table(**columns):
    return pandas.DataFrame({"age": [50.0, 61.0, 47.0, 58.0], **columns})


def objects(values):
    return pandas.Series(values, dtype=object)


@pytest.mark.parametrize(
    "columns",
    [
        {"dose": objects([1, 2.5, 3, 4])},
        {"dose": objects([decimal.Decimal(1)] * 4), "cost": ["1.5", "2", "3", "4"]},
        {"dose": pandas.array(["1", "2", "3", "4"], dtype="string")},
    ],
)
def test_numbers_that_are_stored_as_objects_are_to_be_converted(columns):
    """`pandas.get_dummies` would make a column of each number."""
    features = table(**columns)
    words = ["'dose'", "that can be converted", "convert them with features.astype(float)"]
    message = check_message(lambda: gs.losses.Logistic(features, LABELS, agents=2), words)
    assert "get_dummies" not in message
    assert gs.losses.Logistic(features.astype(float), LABELS, agents=2).d == features.shape[1]


def test_text_is_to_be_encoded_and_numbers_beside_it_converted():
    features = table(site=["a", "b", "a", "b"], dose=objects([1, 2.5, 3, 4]))
    words = ["got column 'site' of type", "pandas.get_dummies", "after column 'dose' became float"]
    check_message(lambda: gs.losses.Logistic(features, LABELS, agents=2), words)
    encoded = pandas.get_dummies(features.astype({"dose": float}))
    assert gs.losses.Logistic(encoded, LABELS, agents=2).d == 4


@pytest.mark.parametrize("codes", [[1, 2, 1, 2], ["1", "2", "1", "2"]])
def test_categories_are_to_be_encoded_even_if_they_are_numbers(codes):
    features = table(site=pandas.Categorical(codes))
    check_message(lambda: gs.losses.Logistic(features, LABELS, agents=2), ["'site' of type category", "get_dummies"])


@pytest.mark.parametrize("loss", [gs.losses.Logistic, gs.losses.LeastSquares])
def test_labels_in_a_frame_are_to_be_chosen_by_their_column(loss):
    labels = pandas.DataFrame({"ill": LABELS, "other": LABELS})
    for given in (labels, labels[["ill"]]):
        message = check_message(lambda given=given: loss(FEATURES, given, agents=2), ["must be 1-D", "['ill']"])
        assert "ravel" not in message
    assert loss(FEATURES, labels["ill"], agents=2).m == 2


@pytest.mark.parametrize("labels", [LABELS[:, None], LABELS[:, None].tolist()])
def test_labels_in_a_column_are_to_be_flattened(labels):
    check_message(lambda: gs.losses.Logistic(FEATURES, labels, agents=2), ["got shape (4, 1)", "np.ravel(labels)"])
    assert gs.losses.Logistic(FEATURES, np.ravel(labels), agents=2).m == 2


def test_too_few_targets_are_not_to_be_flattened():
    message = check_message(lambda: gs.losses.LeastSquares(FEATURES, [1.0], agents=2), ["targets", "got shape (1,)"])
    assert message.endswith("give one for each row")
