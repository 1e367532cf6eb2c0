"""Certificates with which the machines of a Ray cluster know each other.

Ray checks both ends of a connection (`RAY_USE_TLS`): a process without a certificate of the
cluster's own authority can neither join it nor talk to its processes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from results.storage.atomic import write_atomic
from results.storage.folder import making
from search_spaces.errors import UserError

CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
CERTIFICATE, KEY = "tls.crt", "tls.key"
"""The names that Kubernetes gives to them in its secrets."""
_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_HERE = ("localhost", "127.0.0.1")
"""Each machine's processes talk to each other by these, too."""
_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
_CLOCKS = timedelta(hours=1)
"""How much the clock of another machine may be behind."""


def make_certificates(
    folder: Path, hosts: Sequence[str], days: int, also: Sequence[str] = ()
) -> list[Path]:
    """Make a certificate and a key for each host, and the authority that signs them.

    An authority that the folder has already signs new hosts, too. A host that has a certificate
    gets a new one.

    Args:
        folder: gets `ca.crt`, `ca.key`, and `tls.crt` and `tls.key` in a folder for each host.
        hosts: names or addresses, as Ray's nodes are started with (`--node-ip-address`).
        days: how long they are valid; the authority is for ten times as long.
        also: more names that each of these hosts has.

    Returns:
        The folders of the hosts.

    Raises:
        UserError: a host is no name or address, the authority's files are damaged or incomplete,
            or the folder cannot be written.
    """
    names = {host: _subject(host) for host in hosts}  # all, before anything is written
    others = [_subject(name) for name in (*also, *_HERE)]
    with making(folder, mode=0o700):
        authority, key = _authority(folder, 10 * days)
        for host, name in names.items():
            own = ec.generate_private_key(ec.SECP256R1())
            made = _builder(host, authority.subject, own.public_key(), key, days)
            known = list(dict.fromkeys([name, *others]))
            made = made.add_extension(x509.SubjectAlternativeName(known), False)
            usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            made = made.add_extension(x509.ExtendedKeyUsage(usage), False)
            (folder / host).mkdir(exist_ok=True, mode=0o700)
            _write(folder / host / KEY, own)
            _write(folder / host / CERTIFICATE, made.sign(key, hashes.SHA256()))
    return [folder / host for host in names]


def _subject(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if _NAME.fullmatch(host) and len(host) <= 64:
            return x509.DNSName(host)
    raise UserError(f"{host!r}: not the name or address of a machine")


def _authority(folder: Path, days: int) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    files = folder / CA_CERTIFICATE, folder / CA_KEY
    there = [file for file in files if file.exists()]
    if len(there) == 1:
        missing = next(file for file in files if file not in there)
        raise UserError(f"{missing}: missing beside {there[0].name}")
    if there:
        return _read_authority(*files)
    key = ec.generate_private_key(ec.SECP256R1())
    title = f"tune {folder.resolve().name}"[:64]
    made = _builder(title, _common_name(title), key.public_key(), key, days)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = made.add_extension(own, critical=False).add_extension(_SIGNS, critical=True)
    certificate = made.sign(key, hashes.SHA256())
    _write(files[1], key)
    _write(files[0], certificate)
    return certificate, key


def _read_authority(
    file: Path, key_file: Path
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    except (ValueError, TypeError) as e:
        raise UserError(f"{file.parent}: {CA_CERTIFICATE} or {CA_KEY} is damaged ({e})") from e
    fits = key.public_key() == certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not fits:
        raise UserError(f"{key_file}: not the key of {file}")
    return certificate, key


def _builder(
    title: str,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.CertificateBuilder:
    now, identifier = datetime.now(UTC), x509.AuthorityKeyIdentifier.from_issuer_public_key
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(title))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(identifier(issuer_key.public_key()), critical=False)
    )


def _common_name(title: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])


def _write(file: Path, what: x509.Certificate | ec.EllipticCurvePrivateKey) -> None:
    pem = serialization.Encoding.PEM
    if isinstance(what, x509.Certificate):
        return write_atomic(file, what.public_bytes(pem))
    plain = serialization.NoEncryption()
    write_atomic(file, what.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
