"""Where a tokenizer is looked for, which special tokens it has, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer as HFTokenizer

from tests.tokens.builders import make_data, make_tokenizer
from tests.tokens.families import END, byte_level_bpe, llama2_style, llama3_style, unigram, wordpiece
from tests.tokens.hub_server import COMMIT, Hub, running_hub
from tpuworker.errors import RetryError, SpecError, TokenizerError
from tpuworker.storage import RetryPolicy
from tpuworker.tokens.resolve import load_tokenizer
from tpuworker.tokens.tokenizer import Tokenizer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(byte_level_bpe(), encoding="utf-8")
    return path


def write_config(directory: Path, **config: object) -> None:
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def mended(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def test_a_file_is_taken_as_it_stands(file: Path) -> None:
    tokenizer = load_tokenizer(make_data(file))
    assert tokenizer.source == f"file {file}"
    assert HFTokenizer.from_str(tokenizer.json_text).encode("def f(x): pass").ids == (
        HFTokenizer.from_file(str(file)).encode("def f(x): pass").ids
    )
    assert tokenizer.vocab_size == 2000


def test_a_bare_directory_is_its_file(file: Path) -> None:
    assert load_tokenizer(make_data(file.parent)).fingerprint == load_tokenizer(make_data(file)).fingerprint


def test_a_directory_is_opened_as_transformers_opens_it(file: Path) -> None:
    write_config(file.parent, tokenizer_class="PreTrainedTokenizerFast", eos_token=END, pad_token="<|system|>",
                 model_max_length=1024, chat_template="{{ messages }}")  # fmt: skip
    tokenizer = load_tokenizer(make_data(file.parent))
    hf = HFTokenizer.from_file(str(file))
    assert tokenizer.eos_id == hf.token_to_id(END)
    assert tokenizer.pad_id == hf.token_to_id("<|system|>")
    assert tokenizer.model_max_length == 1024
    assert tokenizer.chat_template == "{{ messages }}"
    assert tokenizer.special_tokens["eos_token"] == END


def test_names_of_special_tokens_come_from_the_configuration_beside_the_file(file: Path) -> None:
    write_config(file.parent, eos_token={"content": "<|assistant|>"}, chat_template="x")
    tokenizer = load_tokenizer(make_data(file))
    assert tokenizer.special_tokens["eos_token"] == "<|assistant|>"
    assert tokenizer.chat_template == "x"


def test_what_is_not_there_is_reported_with_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SpecError) as caught:
        load_tokenizer(make_data("nobody/nothing"))
    message = str(caught.value)
    assert "spec.data.tokenizer.path: found 'nobody/nothing'" in message
    assert "no file or directory" in message
    assert "hub's cache" in message
    assert "HF_HUB_OFFLINE" in message


def test_a_path_that_is_missing_in_the_image_is_a_fault_of_the_spec(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="not a name the hub allows"):
        load_tokenizer(make_data(tmp_path / "no" / "such" / "place"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running_hub() as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        server.repositories["me/tok"] = {
            "tokenizer.json": byte_level_bpe().encode(),
            "tokenizer_config.json": json.dumps({"eos_token": END}).encode(),
            "model.safetensors": b"weights",
            "tokenization_mine.py": b"raise SystemExit",
        }
        yield server


NO_PAUSE = RetryPolicy(attempts=3, first_seconds=0, most_seconds=0)


def test_a_repository_of_the_hub_is_opened_at_its_commit_and_only_small_files_are_fetched(hub: Hub) -> None:
    tokenizer = load_tokenizer(make_data("me/tok"), NO_PAUSE)
    assert tokenizer.source == f"me/tok on the hub at commit {COMMIT[:12]}"
    assert tokenizer.eos_id == 0
    assert {path.rpartition("/")[2] for path in hub.requests if "/resolve/" in path} == {
        "tokenizer.json",
        "tokenizer_config.json",
    }


@pytest.mark.parametrize(
    ("name", "revision", "message"),
    [("me/tok", "nope", "without this revision"), ("me/none", None, "no repository of this name on http://127")],
)
def test_what_the_hub_does_not_have_is_a_fault_of_the_spec(
    hub: Hub, name: str, revision: str | None, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        load_tokenizer(make_data(name, tokenizer={"revision": revision}), NO_PAUSE)


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_asks_to_wait_is_asked_again(hub: Hub, status: int) -> None:
    hub.status, hub.failures = status, 2
    assert load_tokenizer(make_data("me/tok"), NO_PAUSE).vocab_size == 2000


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_keeps_failing_is_worth_a_restart(hub: Hub, status: int) -> None:
    hub.status, hub.failures = status, -1
    with pytest.raises(RetryError, match=rf"could not be reached in 3 attempts \(.*{status}"):
        load_tokenizer(make_data("me/tok"), NO_PAUSE)


def test_a_hub_that_does_not_answer_is_worth_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RetryError, match=r"http://127\.0\.0\.1:9 could not be reached"):
        load_tokenizer(make_data("nobody/nothing"), NO_PAUSE)


def test_a_file_that_is_no_tokenizer_says_what_the_library_found(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(SpecError, match="cannot read"):
        load_tokenizer(make_data(path))


def test_a_directory_without_a_tokenizer_lists_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_text("")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SpecError, match=r"config\.json, weights\.bin"):
        load_tokenizer(make_data(tmp_path))


@pytest.mark.parametrize(
    ("change", "expected", "reason"),
    [
        ({}, END, "the end token"),
        ({"pad_token": "<|user|>"}, "<|user|>", "named in spec"),
    ],
)
def test_the_pad_token_is_the_specs_else_the_end_token(
    file: Path, change: dict[str, str], expected: str, reason: str
) -> None:
    tokenizer = load_tokenizer(make_data(file, tokenizer=change))
    assert tokenizer.pad_id == HFTokenizer.from_file(str(file)).token_to_id(expected)
    assert reason in tokenizer.pad_reason


def test_a_pad_token_of_its_own_goes_before_the_end_token() -> None:
    tokenizer = make_tokenizer(unigram())
    assert (tokenizer.pad_id, tokenizer.eos_id) == (0, 1)
    assert tokenizer.pad_reason == "the tokenizer's own pad token"


def test_the_pad_token_of_the_files_padding_counts(file: Path) -> None:
    padding = {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 1,
               "pad_type_id": 0, "pad_token": "<|user|>"}  # fmt: skip
    mended(file, padding=padding)
    tokenizer = load_tokenizer(make_data(file))
    assert tokenizer.pad_id == 1
    assert "padding" in tokenizer.pad_reason
    assert json.loads(tokenizer.json_text)["padding"] is None


def test_neither_pad_nor_end_token_says_how_it_was_looked_for(file: Path) -> None:
    content = json.loads(file.read_text())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != END]
    file.write_text(json.dumps(content))
    with pytest.raises(SpecError) as caught:
        load_tokenizer(make_data(file))
    assert {fault.path for fault in caught.value.faults} == {
        "spec.data.tokenizer.pad_token",
        "spec.data.tokenizer.eos_token",
    }
    assert "'<|user|>'" in str(caught.value)
    assert "the end token)" in str(caught.value)


def test_a_named_token_outside_the_vocabulary_is_refused(file: Path) -> None:
    with pytest.raises(SpecError, match=r"spec\.data\.tokenizer\.pad_token: found '<nope>'.*'<\|endoftext\|>'"):
        load_tokenizer(make_data(file, tokenizer={"pad_token": "<nope>"}))


def test_pretrain_wants_an_end_token_and_text_does_not() -> None:
    assert make_tokenizer(wordpiece()).eos_id is None
    assert make_tokenizer(wordpiece(), task="pretrain").suffix == (3,)
    assert make_tokenizer(llama3_style(), task="pretrain").eos_id is not None


def test_a_length_above_the_models_is_refused_with_the_limit(file: Path) -> None:
    write_config(file.parent, eos_token=END, model_max_length=8)
    with pytest.raises(SpecError, match=r"spec\.data\.max_length: found 16; wanted at most 8"):
        load_tokenizer(make_data(file))


@pytest.mark.parametrize("sentinel", [10**30, 1e30, 1000000000000000019884624838656])
def test_the_librarys_sentinel_is_no_limit(file: Path, sentinel: float) -> None:
    write_config(file.parent, eos_token=END, model_max_length=sentinel)
    assert load_tokenizer(make_data(file)).model_max_length is None
    write_config(file.parent, eos_token=END, model_max_length=sentinel, tokenizer_class="PreTrainedTokenizerFast")
    assert load_tokenizer(make_data(file.parent)).model_max_length is None


def test_no_room_beside_the_templates_tokens_is_refused() -> None:
    with pytest.raises(SpecError, match="at least 3: the template puts 2 tokens"):
        make_tokenizer(wordpiece(), max_length=2)


def test_dropout_is_refused(file: Path) -> None:
    content = json.loads(file.read_text())
    content["model"]["dropout"] = 0.1
    file.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=r"model\.dropout: found 0\.1; wanted null"):
        load_tokenizer(make_data(file))


def test_an_added_token_whose_declared_id_the_library_ignores_is_refused(file: Path) -> None:
    content = json.loads(file.read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "id": 2007, "content": "<|late|>"})
    file.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match="2007 declared, 2000 given"):
        load_tokenizer(make_data(file))


@pytest.mark.parametrize("json_text", [byte_level_bpe(), llama2_style(), wordpiece()], ids=["bpe", "llama-2", "bert"])
def test_a_tokenizer_travels_as_bytes(json_text: str) -> None:
    tokenizer = make_tokenizer(json_text)
    received = Tokenizer.from_bytes(tokenizer.to_bytes())
    assert received == tokenizer
    assert received.fingerprint == tokenizer.fingerprint


def test_the_fingerprint_ignores_spacing_and_sees_the_pad_token(file: Path) -> None:
    before = load_tokenizer(make_data(file)).fingerprint
    file.write_text(json.dumps(json.loads(file.read_text()), indent=4))
    assert load_tokenizer(make_data(file)).fingerprint == before
    assert load_tokenizer(make_data(file, tokenizer={"pad_token": "<|user|>"})).fingerprint != before
