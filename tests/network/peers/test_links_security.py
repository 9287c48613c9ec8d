"""Who gets in, and what an authenticated neighbour can do: nothing but its part of the run."""

import contextlib
import math
import os
import random
import re
import socket
import ssl
import threading
import time

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from peers_processes import SIZE, Agents, Injector, Partner, Proxy, drift, memory, mix, undisturbed, wait_until

from gradslide.network.peers import tls, wire
from gradslide.network.peers.errors import PeerError
from gradslide.network.peers.handshake import Handshake
from gradslide.network.peers.keys import make_key_pair, raw
from gradslide.network.peers.sockets import Sockets
from gradslide.network.peers.tls import tls_context
from gradslide.network.peers.wire import HEADER_SIZE, Kind, Message

PAIR = [(0, 1)]


def sealed(header, payload=b""):
    """A header with any fields, and the checksum that fits."""
    return header[:-4] + wire.zlib.crc32(payload, wire.zlib.crc32(header[:-4])).to_bytes(4, "little") + payload


def stranger(tmp_path):
    return make_key_pair("stranger", tmp_path)


def test_an_unknown_key_stays_outside(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        partner = Partner(agents, 20)
        outside = stranger(tmp_path)

        def inject(round):
            if round == 10:
                intruder = Injector(outside, agents.addresses[0], agents.keys[0].public)
                with pytest.raises(OSError, match="UNKNOWN_CA"):
                    wait_until(lambda: intruder.send(partner.frame(round=round)), 10, "the refusal")
                intruder.close()

        partner.run(inject)
        assert "unknown sender: rejected: its key is not that of a neighbour" in agents.log(0)


def test_a_neighbours_signature_under_another_key_is_not_enough(tmp_path):
    """A certificate that a neighbour has signed for the key of somebody else."""
    with Agents(tmp_path, PAIR) as agents:
        partner = Partner(agents, 20)
        outside = stranger(tmp_path)
        context = tls_context(outside, [agents.keys[0].public], server=False)
        load_signed(context, tmp_path, signer=agents.keys[1], holder=outside)

        def inject(round):
            if round == 10:
                intruder = Injector(outside, agents.addresses[0], agents.keys[0].public, context)
                with pytest.raises(OSError, match=r"hung up|reset|EOF|closed"):
                    wait_until(lambda: intruder.send(partner.frame(round=round)), 10, "the refusal")
                intruder.close()

        partner.run(inject)
        assert f"unknown sender: rejected: the key {outside.public} is not that of a neighbour" in agents.log(0)


def load_signed(context, folder, *, signer, holder):
    """Let a context present a certificate for the holder's key with the signer's signature."""
    keys = [Ed25519PrivateKey.from_private_bytes(raw(pair.secret)) for pair in (signer, holder)]
    public = keys[1].public_key()
    issuer = tls._key_name(keys[0].public_key())
    certificate = tls._certificate(public, keys[0], tls._name("gradslide agent"), issuer, is_anchor=False)
    secret = keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "signed.pem").write_bytes(certificate + secret)
    context.load_cert_chain(folder / "signed.pem")


# Of a certificate that OpenSSL accepts, and that is no strict DER, or of an unknown version.
ODD = {
    "boolean": (b"\x01\x01\xff\x04", b"\x01\x01\x01\x04"),
    "version": (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x03"),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_neighbours_certificate_that_cannot_be_read_ends_its_connection_alone(tmp_path, odd):
    with Agents(tmp_path, PAIR) as agents:
        partner = Partner(agents, 20)
        context = tls_context(agents.keys[1], [agents.keys[0].public], server=False)
        load_odd(context, tmp_path, agents.keys[1], *ODD[odd])

        def inject(round):
            if round == 10:
                intruder = Injector(agents.keys[1], agents.addresses[0], agents.keys[0].public, context)
                with pytest.raises(OSError, match=r"hung up|reset|EOF|closed|Broken pipe"):
                    wait_until(lambda: intruder.send(partner.frame(round=round)), 10, "the refusal")
                intruder.close()

        partner.run(inject)
        assert "unknown sender: rejected: its certificate cannot be read" in agents.log(0)


def load_odd(context, folder, holder, old, new):
    """Let a context present a certificate of the holder in which some bytes differ, with a signature that fits."""
    key = Ed25519PrivateKey.from_private_bytes(raw(holder.secret))
    public = key.public_key()
    pem = tls._certificate(public, key, tls._name("gradslide agent"), tls._key_name(public), is_anchor=False)
    certificate = x509.load_pem_x509_certificate(pem)
    signed = certificate.tbs_certificate_bytes
    changed = signed.replace(old, new, 1)
    assert changed != signed
    whole = certificate.public_bytes(Encoding.DER).replace(signed, changed)
    der = whole[: -len(certificate.signature)] + key.sign(changed)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "odd.pem").write_bytes(ssl.DER_cert_to_PEM_cert(der).encode() + secret)
    context.load_cert_chain(folder / "odd.pem")


def test_an_agent_that_is_not_listed_is_told_so_and_dials_less_and_less_often(tmp_path, monkeypatch):
    dialled, dial = [], Sockets._dial
    monkeypatch.setattr(Sockets, "_dial", lambda self, *line: dialled.append(line) or dial(self, *line))
    with Agents(tmp_path, PAIR) as agents:
        agents.start(0, deadline=2.5)
        agents.keys[1] = stranger(tmp_path)
        with pytest.raises(PeerError, match=r"a0: no handshake.*never heard from.*refuses this agent's key"):
            agents.links(1, deadline=2.0).open()
        assert agents.finish() == [3]
        assert "unknown sender: rejected: its key is not that of a neighbour" in agents.log(0)
    assert 1 <= len(dialled) <= 7, "after 0.1, 0.2, 0.4, 0.8 and 1.6 s"


def test_a_server_with_the_wrong_key_is_not_talked_to(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        agents.start(0, deadline=2.5)
        agents.keys[0] = stranger(tmp_path)
        with pytest.raises(PeerError, match=r"a0: no handshake.*its key is not that of a neighbour"):
            agents.links(1, deadline=2.0).open()
        assert agents.finish() == [3]
        assert "never heard from" in agents.error(0)["text"]
        assert "it refuses this agent's key" in agents.log(0)


def test_two_neighbours_with_exchanged_addresses_are_told_apart(tmp_path):
    with Agents(tmp_path, [(0, 1), (0, 2)]) as agents:
        agents.silent = {0}
        agents.start(1, deadline=4.0)
        agents.start(2, deadline=4.0)
        agents.addresses[1:] = agents.addresses[:0:-1]
        with pytest.raises(PeerError, match=r"never heard from.*neighbour a[12] answers at its address"):
            agents.links(0, deadline=2.0).open()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_shows_no_certificate_or_speaks_an_old_protocol_is_not_let_in(tmp_path, version):
    with Agents(tmp_path, PAIR) as agents:
        partner = Partner(agents, 10)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version

        def inject(round):
            if round == 5:
                with (
                    pytest.raises(OSError, match=r"(?i)certificate required|alert|protocol|hung up"),
                    contextlib.closing(Injector(None, agents.addresses[0], None, context)) as intruder,
                ):
                    wait_until(lambda: intruder.send(partner.frame(round=round)), 10, "the refusal")

        partner.run(inject)
        assert "unknown sender: rejected: a handshake failed" in agents.log(0)


def test_garbage_at_the_door_does_no_harm(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        partner = Partner(agents, 20)
        noise = random.Random(5)
        port = int(agents.addresses[0].rsplit(":", 1)[1])

        def inject(round):
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", port)) as plain:
                    greeting = b"\x16\x03\x01\x00" if noise.random() < 0.5 else b""
                    plain.sendall(greeting + noise.randbytes(noise.randrange(1, 200)))

        partner.run(inject)
        assert "unknown sender: rejected: a handshake failed" in agents.log(0)


def test_who_speaks_is_known_from_the_key_and_not_from_the_message(tmp_path):
    with Agents(tmp_path, [(0, 1), (0, 2)], rounds=20) as agents:
        agents.start(0)
        agents.start(1, pause=0.02)
        links = agents.links(2)
        links.open()
        # Agent 2, who is in, says it were agent 1, in the message and as the name of its connection.
        edge = wire.edge_between("test", {"method": "mix"}, agents.keys[1].public, agents.keys[0].public)
        liar = Injector(agents.keys[2], agents.addresses[0], agents.keys[0].public)
        x = drift(2, -1 % 2**32)
        for round in range(20):
            for session in (links._thread._session, bytes(8)):
                liar.send(wire.encode(Message(Kind.DATA, session, round, content=np.ones(SIZE)), edge))
            x = mix(x, links.exchange({"a0": x}, {"a0": (np.float64, (SIZE,))}), 2, round)
        links.close()
        liar.close()
        assert agents.finish() == [0, 0]
        for mine, theirs in zip((agents.result(0), agents.result(1), x), undisturbed(agents.edges, 20), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert "neighbour a2: rejected: a DATA of another edge" in agents.log(0)
        assert "neighbour a1: rejected" not in agents.log(0)


LIMIT = 8 * SIZE


def bad_frames(partner, round):
    """What must be rejected, and why."""
    frame, edge = partner.frame, partner.edge
    other_run = wire.Edge(bytes(16), edge.sender, edge.receiver)
    newer = bytearray(frame(round=round))
    newer[4] = 2
    return {
        "again, in round": frame(round=max(0, round - 2)),
        f"round {round + 7} in round": frame(round=round + 7),
        "too few for a header": frame(round=round)[:50],
        "bytes of payload where the header says": frame(round=round)[:-3],
        "over the size limit": frame(round=round, content=np.zeros(2 * SIZE)),
        "a DATA of another edge": frame(round=round, edge=edge.back()),
        "a DATA of another run": frame(round=round, edge=other_run),
        "a STATUS of another run": frame(Kind.STATUS, round, edge=other_run, need=round, flags=2),
        "a DATA of another start": frame(round=round, session=bytes(8)),
        "format version 2": bytes(newer),
        "checksum does not fit": frame(round=round)[:-1] + b"\x01",
        "though it said it writes no checkpoints": frame(Kind.ACK, round),
        "a HANDSHAKE that cannot be read": frame(Kind.HANDSHAKE, round, content="{}"),
        "no gradslide message": b"\x80\x04K*." + bytes(200),
    }


def test_bad_messages_of_a_neighbour_are_rejected_logged_and_without_effect(tmp_path):
    with Agents(tmp_path, PAIR, size_limit=LIMIT) as agents:
        partner = Partner(agents, 40)
        reasons = []

        def inject(round):
            frames = bad_frames(partner, round)
            if 10 <= round < 10 + len(frames):
                reason, frame = list(frames.items())[round - 10]
                reasons.append(reason)
                partner.injector.send(frame)
                wait_until(lambda: reason in agents.log(0), 5, reason)
            if round == 30:
                partner.injector.send(b"")
            if round == 31:
                with contextlib.suppress(OSError):  # the agent hangs up
                    partner.injector.send(bytes(10 * 2**20))
                wait_until(lambda: "bytes is over the size limit" in agents.log(0), 5, "that to be refused")

        partner.run(inject)
        assert len(reasons) == len(bad_frames(partner, 9))


@pytest.mark.first(4)
@pytest.mark.parametrize("content", [np.zeros(SIZE + 1), np.zeros(SIZE, np.float32), np.zeros((1, SIZE)), np.zeros(0)])
@pytest.mark.parametrize("ahead", [0, 1])
def test_a_wrong_shape_or_dtype_is_rejected_and_asked_for_again(tmp_path, content, ahead):
    with Agents(tmp_path, PAIR) as agents:
        partner = Partner(agents, 8)

        def inject(round):
            if round == 3:
                # The victim is in this round once its own array of it is here.
                wait_until(lambda: round in partner.links._thread.peers["a0"].inbox, 10, "the victim")
                partner.injector.send(partner.frame(round=round + ahead, content=content))
                time.sleep(0.1)

        partner.run(inject)
        said = f"round {3 + ahead} with {content.dtype} {content.shape} instead of float64 ({SIZE},)"
        assert said in agents.log(0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_or_infinity_is_an_error_that_names_the_neighbour(tmp_path, bad):
    with Agents(tmp_path, PAIR) as agents:
        process = agents.start(0)
        links = agents.links(1)
        links.open()
        x = np.zeros(SIZE)
        for round in range(4):
            x[5] = bad if round == 3 else 0
            links.exchange({"a0": x}, {"a0": (np.float64, (SIZE,))})
        assert agents.finish(process) == [3]
        links.close("test")
        error = agents.error(0)
        assert (error["neighbour"], error["round"]) == ("a1", 3)
        assert "neighbour a1: NaN or infinity arrived for round 3" in error["text"]


def mutated(noise, frames):
    """A frame that differs from all given ones."""
    while True:
        one, other = noise.choice(frames), noise.choice(frames)
        kind = noise.randrange(6)
        if kind == 0:
            changed = bytearray(one)
            for _ in range(noise.randrange(1, 4)):
                changed[noise.randrange(len(changed))] ^= 1 << noise.randrange(8)
        elif kind == 1:
            changed = one[: noise.randrange(len(one))]
        elif kind == 2:
            changed = one + noise.randbytes(noise.randrange(1, 64))
        elif kind == 3:
            changed = one[:HEADER_SIZE] + other[HEADER_SIZE:]
        elif kind == 4:
            # Any byte of the header, with a checksum that fits; session and round are its business, not to be guessed.
            place = noise.choice([*range(40), *range(64, HEADER_SIZE - 4)])
            header = bytearray(one[:HEADER_SIZE])
            header[place] ^= 1 << noise.randrange(8)
            changed = sealed(bytes(header), one[HEADER_SIZE:])
        else:
            changed = noise.randbytes(noise.randrange(300))
        if bytes(changed) not in frames:
            return bytes(changed)


def wait_until_idle(process, seconds=60.0):
    """Until it has read what was sent to it: nothing else tells."""
    end, before = time.monotonic() + seconds, -math.inf
    while (now := processor_seconds(process)) - before > 0.03 and time.monotonic() < end:
        before = now
        time.sleep(0.3)


def processor_seconds(process):
    with open(f"/proc/{process.pid}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_ten_thousand_mutated_messages_have_no_effect(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        partner = Partner(agents, 100)
        noise, before = random.Random(7), []
        handshake = Handshake("test", {"method": "mix"}, bytes(8), None).text()

        def inject(round):
            frames = [
                partner.frame(round=round, content=np.ones(SIZE)),
                partner.frame(round=round + 1, content=np.ones(SIZE)),
                partner.frame(Kind.HANDSHAKE, round, handshake, flags=1),
                partner.frame(Kind.STATUS, round, need=round, flags=3),
                partner.frame(Kind.ACK, round),
                partner.frame(Kind.BYE, round, "gone", need=round),
            ]
            for _ in range(100):
                partner.injector.send(mutated(noise, frames))
            if round == 5:
                before.append(memory(partner.process))
            if round == 99:
                # Whoever ends before it has read all of them cannot have rejected them.
                wait_until_idle(partner.process)
                assert memory(partner.process) - before[0] < 30e6

        partner.run(inject)
        lines = agents.log(0).splitlines()
        assert len(lines) < 60, "a flood does not fill the disk"
        # On a slow machine the flood is summed up more than once.
        summary = re.compile(r"WARNING gradslide.peers neighbour a1: (\d+) more rejected, at last: .+")
        summed = [int(found[1]) for line in lines if (found := summary.fullmatch(line))]
        assert summary.fullmatch(lines[-1])
        # What is left can be told from good messages by nobody: other flags, or the header of one that is as long.
        assert 9_000 < len(lines) - len(summed) + sum(summed) <= 10_000


def test_what_goes_over_the_wire_cannot_be_read(tmp_path):
    with Agents(tmp_path, PAIR, rounds=3) as agents:
        proxies = [Proxy(agents.addresses[1]), Proxy(agents.addresses[0])]
        agents.seen_at = {(0, 1): proxies[0].address, (1, 0): proxies[1].address}
        agents.start(0)
        agents.start(1)
        assert agents.finish() == [0, 0]
        seen = bytes(proxies[0].seen + proxies[1].seen)
        assert seen[:2] == b"\x16\x03", "the proxies have seen the handshake of TLS"
        for secret in (drift(0, -1 % 2**32)[:1].tobytes(), drift(1, -1 % 2**32)[3:4].tobytes(), b"GSLP", b"method"):
            assert secret not in seen
        for proxy in proxies:
            proxy.cut()


@pytest.mark.slow
def test_somebody_else_on_a_neighbours_port_is_survived(tmp_path):
    """A service that talks something else, or an agent with another key, sits where the neighbour will be."""
    with Agents(tmp_path, PAIR, rounds=10) as agents:
        agents.silent = {0}
        port = int(agents.addresses[1].rsplit(":", 1)[1])
        server = socket.create_server(("127.0.0.1", port))

        def serve():
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()
            server.close()

        other = threading.Thread(target=serve)
        other.start()
        agents.start(0)
        other.join(20)
        assert not other.is_alive()
        agents.start(1)
        assert agents.finish() == [0, 0]
