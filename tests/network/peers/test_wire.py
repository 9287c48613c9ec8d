"""Messages as bytes: what is perfect comes back to the bit, all else is rejected."""

import json
import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from gradslide._support.errors import InputError
from gradslide.network.peers.errors import PeerError, SettingsDiffer
from gradslide.network.peers.handshake import Handshake, read_handshake, require_transmittable
from gradslide.network.peers.peer import Outbox, Peer
from gradslide.network.peers.wire import (
    HEADER_SIZE,
    TEXT_LIMIT,
    Edge,
    Kind,
    Message,
    Rejected,
    array_of,
    decode,
    edge_between,
    encode,
)

EDGE = Edge(b"r" * 16, b"s" * 8, b"t" * 8)
SESSION = b"12345678"
LIMIT = 2**16
ARRAYS = st_np.arrays(
    st.sampled_from([np.float32, np.float64]), st_np.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=9)
)
KEYS = ["ed25519:" + "A" * 43, "ed25519:" + "B" * 42 + "A"]


def data(round=3, content=None, **other):
    fields = {"kind": Kind.DATA, "session": SESSION, "round": round, "content": content, **other}
    return Message(**{**fields, "content": np.arange(4.0) if content is None else content})


def sealed(frame, place, value):
    """The frame with other bytes in its header, and the checksum that fits."""
    header = frame[:place] + value + frame[place + len(value) : HEADER_SIZE]
    payload = frame[HEADER_SIZE:]
    return header[:-4] + zlib.crc32(payload, zlib.crc32(header[:-4])).to_bytes(4, "little") + payload


@given(array=ARRAYS, round=st.integers(0, 2**63 - 1), session=st.binary(min_size=8, max_size=8))
@settings(max_examples=60, deadline=None)
def test_arrays_come_back_to_the_bit(array, round, session):
    frame = encode(data(round, array, session=session), EDGE)
    back = decode(frame, EDGE, LIMIT)
    assert (back.kind, back.session, back.round) == (Kind.DATA, session, round)
    for content in (back.content, array_of(frame)):
        assert content.dtype == array.dtype
        assert content.shape == array.shape
        assert content.tobytes() == array.tobytes()
        assert content.flags.writeable


@pytest.mark.parametrize("array", [np.arange(6.0)[::2], np.arange(6.0).reshape(2, 3).T, np.arange(3, dtype=">f8")])
def test_any_layout_of_memory_can_be_sent(array):
    np.testing.assert_array_equal(decode(encode(data(content=array), EDGE), EDGE, LIMIT).content, array)


@pytest.mark.parametrize("kind", [Kind.HANDSHAKE, Kind.STATUS, Kind.ACK, Kind.BYE])
def test_control_messages_come_back(kind):
    text = "grüße" if kind in (Kind.HANDSHAKE, Kind.BYE) else ""
    message = Message(kind, SESSION, 7, 8, 3, text)
    assert decode(encode(message, EDGE), EDGE, LIMIT) == message


FRAME = encode(data(), EDGE)
STATUS = encode(Message(Kind.STATUS, SESSION, 3), EDGE)
# Places in the header.
FLAGS, DTYPE, ROUND, NEED, ROWS, COLUMNS, LENGTH, NDIM = 6, 7, 48, 56, 64, 72, 80, 88
IMPERFECT = {
    "0 bytes are too few": b"",
    "95 bytes are too few": FRAME[:95],
    "no gradslide message": sealed(FRAME, 0, b"HTTP"),
    "format version 2, not 1": sealed(FRAME, 4, b"\x02"),
    "unknown kind 0": sealed(FRAME, 5, b"\x00"),
    "unknown kind 6": sealed(FRAME, 5, b"\x06"),
    "flags on data": sealed(FRAME, FLAGS, b"\x01"),
    "unknown flags 4": sealed(STATUS, FLAGS, b"\x04"),
    "unknown dtype 3": sealed(FRAME, DTYPE, b"\x03"),
    "unknown dtype 0": sealed(FRAME, DTYPE, b"\x00"),
    "a DATA of another run": encode(data(), Edge(b"x" * 16, EDGE.sender, EDGE.receiver)),
    "a DATA of another edge": encode(data(), EDGE.back()),
    "a round beyond": sealed(FRAME, ROUND, b"\xff" * 8),
    "flags on data ": sealed(FRAME, NEED, b"\x01"),
    "shape \\(5,\\)": sealed(FRAME, ROWS, b"\x05"),
    "1 dimensions of": sealed(FRAME, COLUMNS, b"\x01"),
    "32 bytes of payload where the header says 33": sealed(FRAME, LENGTH, b"\x21"),
    "0 dimensions": sealed(FRAME, NDIM, b"\x00"),
    "3 dimensions": sealed(FRAME, NDIM, b"\x03"),
    "shape .* is over": sealed(encode(data(content=np.zeros((0, 3))), EDGE), COLUMNS + 6, b"\x01"),
    "31 bytes of payload": FRAME[:-1],
    "33 bytes of payload": FRAME + b"x",
    "checksum": FRAME[:-1] + bytes([FRAME[-1] ^ 1]),
    "a STATUS with a shape": sealed(STATUS, ROWS, b"\x01"),
    "a STATUS of 1 bytes": encode(Message(Kind.STATUS, SESSION, 3, content="x"), EDGE),
    "a BYE of": encode(Message(Kind.BYE, SESSION, 3, content="x" * (TEXT_LIMIT + 1)), EDGE),
    "65544 bytes are over the size limit": encode(data(content=np.zeros(8193)), EDGE),
}


@pytest.mark.parametrize("reason", IMPERFECT)
def test_what_is_not_perfect_is_rejected_with_the_reason(reason):
    with pytest.raises(Rejected, match=reason.strip()):
        decode(IMPERFECT[reason], EDGE, 2**20 if "BYE" in reason else LIMIT)


def test_a_text_that_is_none_is_rejected():
    frame = encode(Message(Kind.BYE, SESSION, 3, content="xx"), EDGE)
    header = sealed(frame[:HEADER_SIZE] + b"\xff\xfe", 0, b"")
    with pytest.raises(Rejected, match="no text"):
        decode(header, EDGE, LIMIT)


def test_a_hello_of_another_run_is_let_through_to_say_which():
    other = Edge(b"x" * 16, EDGE.sender, EDGE.receiver)
    assert decode(encode(Message(Kind.HANDSHAKE, SESSION, 0, content="{}"), other), EDGE, LIMIT).content == "{}"


def test_mutated_frames_are_rejected_or_what_they_were():
    noise, rejected = random.Random(3), 0
    frames = [FRAME, STATUS, encode(Message(Kind.HANDSHAKE, SESSION, 0, content=Handshake("r", {}).text()), EDGE)]
    for _ in range(10_000):
        frame = bytearray(noise.choice(frames))
        for _ in range(noise.randrange(1, 5)):
            frame[noise.randrange(len(frame))] = noise.randrange(256)
        if bytes(frame) in frames:
            continue
        with pytest.raises(Rejected):
            decode(bytes(frame), EDGE, LIMIT)
        rejected += 1
    assert rejected > 9_000


def test_edges_depend_on_run_settings_and_both_keys():
    one = edge_between("run", {"d": "3", "method": "PDS"}, *KEYS)
    assert one == edge_between("run", {"method": "PDS", "d": "3"}, *KEYS)
    assert one.back() == edge_between("run", {"method": "PDS", "d": "3"}, *reversed(KEYS))
    others = [
        edge_between("ru", {"n": ""}, *KEYS),
        edge_between("run", {}, *KEYS),
        edge_between("run", {"d": "3"}, *KEYS),
    ]
    assert len({one.run, *(other.run for other in others)}) == 4


def test_hellos_come_back_and_say_what_differs():
    here = Handshake("r1", {"method": "PDS", "d": "10", "L": "2"}, SESSION, 4)
    assert read_handshake(here.text()) == here
    there = Handshake("r2", {"method": "SPDS", "d": "10", "extra": "1"})
    assert here.differences(here) == {}
    assert here.differences(there) == {
        "run id": ("r1", "r2"),
        "method": ("PDS", "SPDS"),
        "L": ("2", None),
        "extra": (None, "1"),
    }
    said = str(SettingsDiffer("b", 0, here.differences(there)))
    assert said.startswith("neighbour b: settings differ: ")
    assert "method (PDS here, SPDS there)" in said
    assert "extra (not set here, 1 there)" in said


def test_what_a_neighbour_wrote_cannot_forge_lines_of_the_log():
    said = str(SettingsDiffer("b", 0, {f"n{i}": ("1", "2\nWARNING forged\x1b[0m" + "x" * 5000) for i in range(50)}))
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) < 2000
    assert "and 42 more" in said


GOOD = json.loads(Handshake("r", {"d": "1"}, SESSION, 4).text())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "[" * 60_000,
        "9" * 5000,
        json.dumps({**GOOD, "more": 1}),
        json.dumps({**GOOD, "run": 1}),
        json.dumps({**GOOD, "settings": {"d": 1}}),
        json.dumps({**GOOD, "settings": [["d", "1"]]}),
        json.dumps({**GOOD, "settings": {str(i): "" for i in range(300)}}),
        json.dumps({**GOOD, "echo": "zz"}),
        json.dumps({**GOOD, "echo": "00"}),
        json.dumps({**GOOD, "echo": None}),
        json.dumps({**GOOD, "covered": -1}),
        json.dumps({**GOOD, "covered": True}),
        json.dumps({**GOOD, "covered": 2**64}),
    ],
)
def test_a_hello_that_is_not_perfect_is_rejected(text):
    assert read_handshake(json.dumps(GOOD)).covered == 4
    with pytest.raises(Rejected, match="cannot be read"):
        read_handshake(text)


@pytest.mark.parametrize("settings", [{"d": 3}, {"d": "x" * TEXT_LIMIT}, {str(i): "" for i in range(300)}])
def test_settings_that_cannot_be_said_are_refused(settings):
    with pytest.raises(InputError, match="settings"):
        require_transmittable("run", settings)


def test_errors_travel_between_processes():
    import pickle

    for error in (PeerError("b", 4, "gone"), SettingsDiffer("b", 4, {"d": ("1", None)})):
        back = pickle.loads(pickle.dumps(error))
        assert (str(back), back.neighbour, back.round) == (str(error), "b", 4)


def boxed(rounds, limit=10**6):
    box = Outbox(rounds[0], limit)
    for round in rounds:
        box.put(round, bytes(HEADER_SIZE) + bytes([round] * 8))
    return box


def test_an_outbox_keeps_until_told_to_forget():
    box = boxed(range(5, 12))
    assert (box.first, box.end) == (5, 12)
    box.forget_before(8)
    assert (box.first, box.end, box[8][-1]) == (8, 12, 8)
    box.put(11, bytes(HEADER_SIZE) + b"same")  # once more, after an interrupt
    assert (box.end, box[11][-4:]) == (12, b"same")
    box.forget_before(20)
    assert (box.first, box.end, box.bytes) == (20, 20, 0)
    box.put(19, b"not needed")
    box.put(20, b"new")
    assert (box.first, box.end, box.bytes) == (20, 21, 3)


def test_an_outbox_over_its_limit_forgets_the_oldest_and_says_so():
    box = boxed(range(10), limit=40)
    assert (box.first, box.end, box.overflowed) == (5, 10, True)
    assert not boxed(range(5), limit=40).overflowed


def met(**handshake):
    """A neighbour that has sent a handshake in round 4, where this agent is in round 6."""
    peer = Peer("b", EDGE, boxed(range(2, 6)))
    peer.begin(Message(Kind.HANDSHAKE, SESSION, 4), Handshake("r", {}, **handshake), 6)
    return peer


def test_a_neighbour_is_sent_what_it_lacks_but_not_more_than_it_has_room_for():
    peer, sent = met(covered=2), []
    for at in (4, 5, 6):
        peer.note(Message(Kind.STATUS, SESSION, at, at))
        due = peer.due()
        sent.append([frame[-1] for frame in due])
        peer.cursor += len(due)
    assert sent == [[4, 5], [], []]
    peer.note(Message(Kind.STATUS, SESSION, 5, 5, 2))
    assert [frame[-1] for frame in peer.due()] == [5], "it asked again"


def test_a_neighbour_that_is_behind_is_sent_one_round_more_than_its_own():
    peer = met(covered=2)
    peer.at = peer.cursor = 2
    assert [frame[-1] for frame in peer.due()] == [2, 3]


def test_a_neighbour_that_says_it_lacks_much_is_sent_a_part_at_a_time():
    peer, sent = Peer("b", EDGE, boxed(range(50))), []
    peer.at = peer.cursor = 49
    peer.note(Message(Kind.STATUS, SESSION, 49, 0, 2))
    while due := peer.due():
        sent.append([frame[-1] for frame in due])
        peer.cursor += len(due)
    rounds = list(range(50))
    assert sent == [rounds[:16], rounds[16:32], rounds[32:48], rounds[48:]]


def test_a_missing_array_is_asked_for_less_and_less_often():
    peer, asked = met(covered=4), []
    peer.wait_from(100.0)
    for now in range(100, 140):
        peer.ask_if_due(float(now))
        if peer.asks_again:
            asked.append(now)
            peer.asks_again = False
    assert asked == [102, 106, 114, 130]


def test_a_neighbours_checkpoint_frees_what_it_covers():
    peer = met(covered=3)
    assert peer.outbox.first == 3
    peer.acknowledge(5)
    assert peer.outbox.first == 5
    peer.acknowledge(4)
    assert peer.outbox.first == 5
    with pytest.raises(Rejected, match="not over"):
        peer.acknowledge(7)
    with pytest.raises(Rejected, match="no checkpoints"):
        met().acknowledge(5)
    with pytest.raises(Rejected, match="ahead"):
        met(covered=5)
    assert met().outbox.first == 4, "without checkpoints, two rounds"


def test_arrays_of_this_round_and_the_next_are_taken():
    peer = met(covered=4)
    peer.repeats_before = 0
    for round in (6, 7):
        peer.accept(data(round), 6)
    assert sorted(peer.inbox) == [6, 7]
    for round in (5, 6, 7):
        with pytest.raises(Rejected, match=f"round {round} again, in round 6"):
            peer.accept(data(round), 6)
    with pytest.raises(Rejected, match="round 8 in round 6"):
        peer.accept(data(8), 6)
    assert peer.lacks(6) == 8


def test_a_neighbour_that_goes_through_old_rounds_anew_offends_nobody():
    peer = met(covered=4)
    peer.accept(data(4), 6)
    peer.accept(data(5), 6)
    assert not peer.inbox
