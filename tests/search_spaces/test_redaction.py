from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from search_spaces.redaction import (
    NAMES,
    also_redact,
    holds_secret,
    looks_secret,
    redact,
    redact_file,
    redacted,
)

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


def test_names_of_secrets_are_told_from_ordinary_ones() -> None:
    assert [name for name in (*SECRET, *ORDINARY) if looks_secret(name)] == SECRET


def test_redact_hides_secrets_and_passwords() -> None:
    text = f"GET https://me:pa55@host/x?t={CANARY}-and-more {CANARY} step learning_rate a:b@c"
    assert redact(text) == "GET https://me:***@host/x?t=*** *** step learning_rate a:b@c"


def test_secret_in_the_query_of_an_address_is_hidden_and_refused_in_a_file() -> None:
    text = "GET https://host/x?max_tokens=5&access_token=ab&sig=c%2F&id=7#top https://h/?apiKey=d"
    hidden = text.replace("=ab", "=***").replace("=c%2F", "=***").replace("=d", "=***")
    assert redact(text) == redact(hidden) == hidden
    assert holds_secret("uri", "https://host/?token=ab")
    assert not holds_secret("uri", "https://host/?token=${TOKEN}")


def test_redacted_hides_secret_values() -> None:
    given = {"api_key": "x", "lr": 0.1, "n": 3, "note": CANARY, "none": None, "l": [CANARY], "b": 1}
    given |= {"nested": {"token": "x", "lr": [0.1]}}
    hidden = {"api_key": "***", "note": "***", "l": ["***"]}
    assert redacted(given) == {**given, **hidden, "nested": {"token": "***", "lr": [0.1]}}


def test_redact_file_overwrites_in_place(tmp_path: Path) -> None:
    log = tmp_path / "rank_0.log"
    redact_file(log)  # not there
    log.touch()
    redact_file(log)
    before = f"one {CANARY}\npostgres://me:pa55@db?token=pa55\n{CANARY}-and-more\xff two".encode(
        "latin-1"
    )
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


SECRET_VARIABLES = {
    "MYSQL_PWD": "x7Kp2vRt9",
    "GITLAB_PAT": "glpat-x7Kp2vRt9",
    "SMTP_PASS": "x7Kp2vRt9",
    "STRIPE_KEY": "sk_live_x7Kp2vRt9",
    "SENTRY_DSN": "https://x7Kp2vRt9@o1.ingest.example/2",
    "SLACK_WEBHOOK": "https://chat.example/T0/x7Kp2vRt9",
}
ORDINARY_VARIABLES = {
    "PWD": "/root/projects",
    "OLDPWD": "/root/projects2",
    "SSH_AUTH_SOCK": "/tmp/ssh-XXXX1234/agent.17",
    "SORT_KEY": "created_at",
    "GOOGLE_APPLICATION_CREDENTIALS": "/usr/lib",
    "BACKUP_PASS": "/usr/bin",
    "SUDO_ASKPASS": "/usr/bin/askpass1",
    "HTTP_PROXY": "http://proxy.example:3128",
    "KEYBOARD": "us-intl-2024",
}


@pytest.mark.parametrize(("name", "value"), {**SECRET_VARIABLES, **ORDINARY_VARIABLES}.items())
def test_secret_variables_are_hidden(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert redact(f"<{value}>") == ("<***>" if name in SECRET_VARIABLES else f"<{value}>")


def test_password_of_an_address_is_a_secret_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:pa55%2Fword@db/x")
    for password in ("pa55%2Fword", "pa55/word"):
        assert redact(f"login with {password}") == "login with ***"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://hooks.slack.com/services/T0/B0/Xy12", "https://hooks.slack.com/***"),
        ("https://discord.com/api/webhooks/12/ab-c ok", "https://discord.com/api/webhooks/*** ok"),
        (
            "https://x.webhook.office.com/webhookb2/a@b",
            "https://x.webhook.office.com/webhookb2/***",
        ),
    ],
)
def test_webhooks_are_hidden(address: str, shown: str) -> None:
    assert redact(address) == shown


def test_named_variables_are_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMES, "")
    for name, value in (("LICENSE", "plain-word"), ("CORP_A", "x7Kp2vRt9"), ("CORP_B", "cheerful")):
        monkeypatch.setenv(name, value)
    assert redact("plain-word x7Kp2vRt9 cheerful") == "plain-word x7Kp2vRt9 cheerful"
    also_redact(["LICENSE"])
    also_redact(["CORP_*"])  # by a pattern: only values that look random
    assert redact("plain-word x7Kp2vRt9 cheerful") == "*** *** cheerful"


@given(
    secret=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=12),
    before=st.binary(max_size=5),
)
def test_no_form_of_a_secret_is_left(secret: str, before: bytes) -> None:
    # hypothesis tries constants of programs, and a path that exists is no secret
    assume(not secret.startswith(("/", "~/", "./")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_TOKEN", secret)
        for text in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret)):
            assert text not in redact(f"?q={text}&")
        for encode in (b64encode, urlsafe_b64encode):
            left = redact(encode(before + secret.encode()).decode())
            assert left.rstrip("=").endswith("***")
            assert len(left.rstrip("=")) <= len(encode(before)) + 2 + len("***")


def test_long_secret_that_begins_like_a_path_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", secret := "/" + "x7Kp2vRt9" * 40)
    assert redact(f"token {secret}") == "token ***"


def test_lines_of_a_secret_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_PRIVATE_KEY", "-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n")
    assert redact("key: MIIEvQIBADAN\n BgkqhkiG9w0B") == "key: ***\n ***"
    as_json = r'"-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n"'
    assert redact(as_json) == '"***"'
