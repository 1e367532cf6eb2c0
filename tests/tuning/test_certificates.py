"""Certificates of a cluster's machines, and what is refused before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from search_spaces.errors import UserError
from tuning.certificates import make_certificates

HOSTS = ["192.0.2.1", "node-2.example"]


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def names(made: x509.Certificate) -> set[str]:
    found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in found}


def test_each_host_has_a_certificate_of_the_authority(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    assert make_certificates(folder, HOSTS, 30) == [folder / host for host in HOSTS]
    authority = certificate(folder / "ca.crt")
    for host in HOSTS:
        made = certificate(folder / host / "tls.crt")
        made.verify_directly_issued_by(authority)
        assert names(made) == {host, "localhost", "127.0.0.1"}
        left = made.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=29) < left <= timedelta(days=30)


def test_hosts_may_have_more_names(tmp_path: Path) -> None:
    make_certificates(tmp_path, HOSTS[:1], 30, ["llm-head-svc.ray.svc"])
    made = certificate(tmp_path / HOSTS[0] / "tls.crt")
    assert names(made) == {HOSTS[0], "llm-head-svc.ray.svc", "localhost", "127.0.0.1"}


def test_a_folder_that_cannot_be_written_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/certs: cannot be written \(Not a directory\)"):
        make_certificates(tmp_path / "file" / "certs", HOSTS, 30)


def test_python_and_openssl_accept_it_as_of_that_host_only(tmp_path: Path) -> None:
    make_certificates(tmp_path, HOSTS, 30)
    builder = PolicyBuilder().store(Store([certificate(tmp_path / "ca.crt")]))
    made = certificate(tmp_path / HOSTS[0] / "tls.crt")
    builder.build_server_verifier(x509.IPAddress(ip_address(HOSTS[0]))).verify(made, [])
    with pytest.raises(x509.verification.VerificationError):
        builder.build_server_verifier(x509.IPAddress(ip_address("192.0.2.9"))).verify(made, [])


def test_a_later_host_is_signed_by_the_same_authority(tmp_path: Path) -> None:
    make_certificates(tmp_path, HOSTS[:1], 30)
    before = (tmp_path / "ca.crt").read_bytes()
    make_certificates(tmp_path, HOSTS[1:], 30)
    assert (tmp_path / "ca.crt").read_bytes() == before
    certificate(tmp_path / HOSTS[1] / "tls.crt").verify_directly_issued_by(
        certificate(tmp_path / "ca.crt")
    )


def test_only_the_owner_reads_the_keys(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certs", HOSTS, 30)
    for key in (tmp_path / "certs").rglob("*.key"):
        assert key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("host", ["", "../x", "two words", "-x", "a..b", "x" * 65])
def test_what_is_no_host_is_refused_before_anything_is_written(tmp_path: Path, host: str) -> None:
    with pytest.raises(UserError, match="not the name or address of a machine"):
        make_certificates(tmp_path / "certs", [*HOSTS, host], 30)
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize("lost", ["ca.crt", "ca.key"])
def test_half_an_authority_is_refused(tmp_path: Path, lost: str) -> None:
    make_certificates(tmp_path, HOSTS[:1], 30)
    (tmp_path / lost).unlink()
    with pytest.raises(UserError, match=f"{lost}: missing beside"):
        make_certificates(tmp_path, HOSTS[1:], 30)


def test_a_damaged_authority_or_a_foreign_key_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path / "one", HOSTS[:1], 30)
    make_certificates(tmp_path / "two", HOSTS[:1], 30)
    (tmp_path / "one" / "ca.key").write_bytes((tmp_path / "two" / "ca.key").read_bytes())
    with pytest.raises(UserError, match="not the key of"):
        make_certificates(tmp_path / "one", HOSTS[1:], 30)
    (tmp_path / "one" / "ca.key").write_text("no key")
    with pytest.raises(UserError, match="damaged"):
        make_certificates(tmp_path / "one", HOSTS[1:], 30)
