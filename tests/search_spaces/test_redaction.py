from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.redaction import looks_secret, redact, redact_file, redacted

CANARY = "hf_canary_4711"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    monkeypatch.setenv("DB_PASSWORD", f"{CANARY}-and-more")
    monkeypatch.setenv("SHORT_SECRET", "step")
    monkeypatch.setenv("HARMLESS", "learning_rate")


SECRET = [
    *["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "apiKey", "db.password"],
    *["wandb.apikey", "client-secret", "PGPASSWORD_PASSWORD", "GOOGLE_CREDENTIALS", "privateKey"],
]
ORDINARY = [
    *["max_tokens", "pad_token", "eos_token", "token_budget", "tokenizer", "key", "sort_key"],
    *["keyboard", "learning_rate", "secret_sauce_ratio", "passes", "vocab", "per_token"],
]


@pytest.mark.parametrize("name", SECRET)
def test_looks_secret_recognises_secret_names(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_looks_secret_leaves_ordinary_names(name: str) -> None:
    assert not looks_secret(name)


def test_redact_hides_secrets_and_passwords() -> None:
    text = f"GET https://me:pa55@host/x?t={CANARY}-and-more {CANARY} step learning_rate a:b@c"
    assert redact(text) == "GET https://me:***@host/x?t=*** *** step learning_rate a:b@c"


def test_redacted_hides_secret_values() -> None:
    given = {"api_key": "x", "lr": 0.1, "n": 3, "note": CANARY, "none": None, "l": [CANARY], "b": 1}
    assert redacted(given) == {
        "api_key": "***",
        "lr": 0.1,
        "n": 3,
        "note": "***",
        "none": None,
        "l": "['***']",
        "b": 1,
    }


def test_redact_file_overwrites_in_place(tmp_path: Path) -> None:
    log = tmp_path / "rank_0.log"
    redact_file(log)  # not there
    log.touch()
    redact_file(log)
    before = f"one {CANARY}\npostgres://me:pa55@db\n{CANARY}-and-more\xff two".encode("latin-1")
    with open(log, "ab", buffering=0) as writer:
        writer.write(before)
        redact_file(log)
        writer.write(b" three")
    after = log.read_bytes()
    assert len(after) == len(before) + len(b" three")
    assert CANARY.encode() not in after
    assert b"pa55" not in after
    assert after.startswith(b"one **")
    assert after.endswith(b"\xff two three")
