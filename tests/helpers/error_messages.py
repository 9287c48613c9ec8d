"""What every error about a user's mistake must look like."""

import re

import pytest

import gradslide as gs


def check_message(mistake, words=(), value="[^;]+"):
    """The mistake is named in one line by its rule, its value and a remedy, with these words in it; the message."""
    with pytest.raises(gs.InputError) as caught:
        mistake()
    message = str(caught.value)
    assert re.fullmatch(rf"(?P<rule>[^;]+); got (?P<value>{value}); (?P<remedy>.+)", message)
    assert "\n" not in message
    assert [word for word in words if word not in message] == []
    return message
