"""Mutual TLS 1.3 between agents that know each other's public keys, and nobody else's.

There is no certificate authority. An agent presents a certificate that its own key has signed; its
neighbours trust exactly the keys that they list. Names, dates and serial numbers in certificates
mean nothing here.
"""

import os
import secrets
import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

from gradslide._support.errors import InputError
from gradslide.network.peers.keys import KeyPair, public_text, raw

# Clocks of sites may differ: a key is valid as long as it is listed.
_FIRST, _LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


class _Socket(ssl.SSLSocket):
    """Closes itself: `wrap_socket` leaves it open if the other side has reset the connection."""

    def __del__(self) -> None:
        self.close()


def tls_context(own: KeyPair, allowed: Iterable[str], *, server: bool) -> ssl.SSLContext:
    """The TLS settings of an agent.

    Parameters
    ----------
    own : KeyPair
    allowed : iterable of str
        Public keys that the other side may have.
    server : bool
        Whether it is for connections that others open.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _Socket
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    if server:
        context.num_tickets = 0  # nothing is resumed
    _load_own(context, own)
    context.load_verify_locations(cadata="".join(_trust_anchor(key) for key in allowed))
    return context


def public_key_of(certificate: bytes) -> str:
    """The public key in a certificate that TLS has verified, empty if it is of another kind."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    return public_text(key.public_bytes_raw()) if isinstance(key, Ed25519PublicKey) else ""


def _load_own(context: ssl.SSLContext, own: KeyPair) -> None:
    """Load key and certificate. `ssl` reads them from a file only: the key in it is encrypted."""
    key = Ed25519PrivateKey.from_private_bytes(raw(own.secret))
    public = key.public_key()
    certificate = _certificate(public, key, _name("gradslide agent"), _key_name(public), is_anchor=False)
    password = secrets.token_hex(32)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    try:
        handle, path = tempfile.mkstemp(suffix=".pem")
    except OSError as error:
        raise _no_temporary_file(error) from None
    try:
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(certificate + encrypted)
        except OSError as error:
            raise _no_temporary_file(error) from None
        context.load_cert_chain(path, password=password)
    finally:
        os.unlink(path)


def _no_temporary_file(error: OSError) -> InputError:
    rule = "an agent needs a folder for temporary files that can be written to"
    return InputError(rule, error.strerror or str(error), "make room, or name another one in TMPDIR")


def _trust_anchor(key: str) -> str:
    """A certificate that says no more than: this key is trusted.

    Nobody verifies the signature of a certificate that is trusted as such.
    """
    public = Ed25519PublicKey.from_public_bytes(raw(key))
    name = _key_name(public)
    return _certificate(public, Ed25519PrivateKey.generate(), name, name, is_anchor=True).decode("ascii")


def _certificate(
    public: Ed25519PublicKey, signer: Ed25519PrivateKey, subject: x509.Name, issuer: x509.Name, *, is_anchor: bool
) -> bytes:
    builder = (
        x509.CertificateBuilder(issuer, subject, public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FIRST)
        .not_valid_after(_LAST)
        .add_extension(x509.BasicConstraints(ca=is_anchor, path_length=0 if is_anchor else None), critical=True)
    )
    return builder.sign(signer, None).public_bytes(Encoding.PEM)


def _key_name(public: Ed25519PublicKey) -> x509.Name:
    """A name by which certificates are matched to keys."""
    return _name(public.public_bytes_raw().hex())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
