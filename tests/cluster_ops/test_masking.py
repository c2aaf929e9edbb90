"""Case C12: nothing secret is printed, and nothing harmless is hidden."""

from __future__ import annotations

import pytest

from tpulaunch.cluster.masking import is_sensitive_name, looks_secret, mask_object, mask_text


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "MY_API_KEY",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "db.password",
        "PGPASSWORD_AUTH",
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_sensitive_name(name)


@pytest.mark.parametrize(
    "name", ["TOKENIZER", "MAX_TOKENS", "TOKENIZERS_PARALLELISM", "KEYBOARD", "AUTHOR", "SECRETARY", "key"]
)
def test_names_that_only_resemble_them_are_not(name: str) -> None:
    assert not is_sensitive_name(name)


@pytest.mark.parametrize("value", ["hf_abcdefghijklmnop", "https://ana:pa55@git.example/x", "ghp_" + "a" * 36])
def test_secrets_are_known_by_their_form(value: str) -> None:
    assert looks_secret(value)


def test_a_spec_keeps_every_byte_but_the_secret_ones() -> None:
    spec = (
        'env: {HF_TOKEN: "hf_abcdefghijklmnop", MODE: offline}  # a note\n'
        "  MY_API_KEY: s3cr3t\n  PROXY: http://ana:pa55@proxy:80/x\n  tokenizer: {path: gpt2}\n  MAX_TOKENS: 5\n"
    )
    assert mask_text(spec) == (
        "env: {HF_TOKEN: ***, MODE: offline}  # a note\n"
        "  MY_API_KEY: ***\n  PROXY: http://ana:***@proxy:80/x\n  tokenizer: {path: gpt2}\n  MAX_TOKENS: 5\n"
    )


def test_variables_of_a_container_are_masked_and_references_to_secrets_are_shown() -> None:
    env = [
        {"name": "HF_TOKEN", "value": "plain"},
        {"name": "MODE", "value": "offline"},
        {"name": "OTHER_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
    ]
    masked = mask_object({"spec": {"containers": [{"name": "worker", "env": env}]}})
    assert masked["spec"]["containers"][0]["env"] == [
        {"name": "HF_TOKEN", "value": "***"},
        {"name": "MODE", "value": "offline"},
        {"name": "OTHER_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
    ]
