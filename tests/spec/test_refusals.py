"""What is refused, where, and with which words: each case is one mistake in an otherwise good spec."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import job_document
from tpuworker.errors import Fault, SpecError
from tpuworker.spec import load_job
from tpuworker.strict import StrictModel


def faults_in(text: str) -> list[Fault]:
    try:
        load_job(text, "job.yaml")
    except SpecError as error:
        return list(error.faults)
    return []


def faults_of(**sections: Any) -> list[Fault]:
    return faults_in(json.dumps(job_document(**sections)))


def the_fault(**sections: Any) -> Fault:
    (fault,) = faults_of(**sections)
    return fault


ONE_MISTAKE: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("unknown key", {"slice": {"topolgy": "4x4"}}, "spec.slice.topolgy", "an unknown key", "did you mean topology?"),
    ("hosts", {"slice": {"hosts": 3}}, "spec.slice.hosts", "an unknown key", ""),
    ("two generations", {"slice": {"generation": ["v6e", "v5e"]}}, "spec.slice.generation", "a list", ""),
    ("wrong type", {"data": {"max_length": "16"}}, "spec.data.max_length", '"16"', "write it without quotes: 16"),
    ("number for text", {"train": {"env": {"A": 1}}}, "spec.train.env.A", "1", 'write it in quotes: "1"'),
    ("wrong word", {"worker": {"backend": "torch"}}, "spec.worker.backend", '"torch"', "did you mean torch_xla?"),
    (
        "unknown generation",
        {"slice": {"generation": "v5e-16"}},
        "spec.slice.generation",
        "'v5e-16'",
        "topology: 4x4 (16 chips)",
    ),
    (
        "another's topology",
        {"slice": {"topology": "2x2x2"}},
        "spec.slice.topology",
        "'2x2x2'",
        "the nearest are 2x4, 2x2, 1x1",
    ),
    (
        "no such topology",
        {"slice": {"topology": "4x3"}},
        "spec.slice.topology",
        "'4x3'",
        "the nearest are 2x4, 4x4, 2x2",
    ),
    (
        "2x4 without machine",
        {"slice": {"topology": "2x4"}},
        "spec.slice.machine",
        "no machine",
        "ct6e-standard-8t (1 x 8 chips)",
    ),
    (
        "wrong machine",
        {"slice": {"machine": "ct6e-standard-8t"}},
        "spec.slice.machine",
        "'ct6e-standard-8t'",
        "write ct6e-standard-4t",
    ),
    ("indivisible batch", {"data": {"global_batch_size": 60}}, "spec.data.global_batch_size", "60", "write 48 or 64"),
    ("batch below devices", {"data": {"global_batch_size": 8}}, "spec.data.global_batch_size", "8", "write 16"),
    ("lanes", {"data": {"shuffle": {"lanes": 6}}}, "spec.data.shuffle.lanes", "6", "write 64 or auto"),
    (
        "one token",
        {"data": {"max_length": 1}},
        "spec.data.max_length",
        "1",
        "a row of one token has nothing to predict",
    ),
    (
        "column of another task",
        {"data": {"conversation_column": "m"}},
        "spec.data.conversation_column",
        "'m'",
        "text_column",
    ),
    (
        "platform's variable",
        {"train": {"env": {"TPU_WORKER_ID": "0"}}},
        "spec.train.env.TPU_WORKER_ID",
        "'TPU_WORKER_ID'",
        "remove it",
    ),
    (
        "variable twice",
        {"train": {"env": {"A": "b"}, "secrets": {"A": {"secret": "s", "key": "k"}}}},
        "spec.train.env",
        "A in env",
        "keep the secret",
    ),
    (
        "owned label",
        {"metadata": {"labels": {"jobset.sigs.k8s.io/x": "y"}}},
        "metadata.labels.jobset.sigs.k8s.io/x",
        "'jobset",
        "fields of spec.schedule",
    ),
    (
        "free text label",
        {"metadata": {"labels": {"note": "two words"}}},
        "metadata.labels.note",
        "'two words'",
        "annotations",
    ),
    ("capital name", {"metadata": {"name": "Tiny_LM"}}, "metadata.name", "'Tiny_LM'", "write 'tiny-lm'"),
    (
        "file as entrypoint",
        {"train": {"entrypoint": "train.py:main"}},
        "spec.train.entrypoint",
        "'train.py:main'",
        "command: [python, file.py]",
    ),
    ("no way to train", {"train": {"entrypoint": None}}, "spec.train", "neither entrypoint nor command", ""),
    ("two ways to train", {"train": {"command": ["python"]}}, "spec.train", "both", ""),
    (
        "volume of no kind",
        {"worker": {"volumes": [{"name": "a", "mount_path": "/a"}]}},
        "spec.worker.volumes[0]",
        "none of them",
        "",
    ),
    (
        "doubled volume",
        {"worker": {"volumes": [{"name": n, "mount_path": "/a", "pvc": {"claim": "c"}} for n in ("a", "b")]}},
        "spec.worker.volumes",
        "mount_path '/a' twice",
        "",
    ),
    ("zero in a variable", {"train": {"env": {"A": "\0"}}}, "spec.train.env.A", "a zero character", ""),
    (
        "endless variable",
        {"train": {"env": {"A": "x" * 131_070}}},
        "spec.train.env.A",
        "131072 bytes",
        "put it into a file",
    ),
    ("negative restarts", {"schedule": {"restarts": -1}}, "spec.schedule.restarts", "-1", ""),
    ("flag for a number", {"schedule": {"restarts": True}}, "spec.schedule.restarts", "true", ""),
    ("no source", {"data": {"sources": []}}, "spec.data.sources", "a list", ""),
    ("source of no kind", {"data": {"sources": [{"weight": 1}]}}, "spec.data.sources[0].files", "nothing", ""),
    ("image with a space", {"worker": {"image": "a b"}}, "spec.worker.image", '"a b"', ""),
]


@pytest.mark.parametrize("case", ONE_MISTAKE, ids=lambda case: case[0])
def test_one_mistake_is_one_fault_with_its_path_and_its_remedy(case: tuple[str, dict[str, Any], str, str, str]) -> None:
    _, sections, path, found, hint = case
    fault = the_fault(**sections)
    assert fault.path == path
    assert fault.found.startswith(found)
    assert hint in fault.hint


def test_a_good_spec_has_no_fault() -> None:
    assert faults_of() == []


def test_all_faults_come_at_once_in_the_order_of_their_lines() -> None:
    text = """\
apiVersion: tpulaunch.dev/v1alpha1
kind: TPUJob
metadata: {name: Tiny}
spec:
  slice: {generation: v6e, topology: 5x5}
  worker: {backend: jaxx}
  data:
    sources: [{files: a.parquet}]
    tokenizer: {path: t}
    max_length: 0
    global_batch_size: 64
    shufle: {seed: 1}
  train: {entrypoint: a}
"""
    assert [(fault.line, fault.path) for fault in faults_in(text)] == [
        (3, "metadata.name"),
        (5, "spec.slice.topology"),
        (6, "spec.worker.backend"),
        (10, "spec.data.max_length"),
        (12, "spec.data.shufle"),
        (13, "spec.train.entrypoint"),
    ]


def test_a_job_without_a_length_is_refused_whatever_limit_its_tokenizer_has() -> None:
    document = job_document()
    del document["spec"]["data"]["max_length"]
    (fault,) = faults_in(json.dumps(document))
    assert (fault.path, fault.found) == ("spec.data.max_length", "nothing")


def test_a_fault_reads_as_one_line_with_file_line_found_wanted_and_hint() -> None:
    with pytest.raises(SpecError) as caught:
        load_job("apiVersion: tpulaunch.dev/v1alpha1\nkind: Job\nspec: {}\n", "job.yaml")
    assert str(caught.value).splitlines()[0] == "job.yaml:2: kind: found \"Job\"; wanted 'TPUJob'; did you mean TPUJob?"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no document"),
        ("# only a comment\n", "no document"),
        ("null\n", "None"),
        ("--- {a: 1}\n--- {b: 2}\n", "2 documents"),
        ("- a\n- b\n", "a list"),
        ("just words\n", "'just words'"),
        ("a: [1\n", "expected"),
        ("a: 1\n b: 2\n", "mapping values are not allowed here"),
        ("a: \x07\n", "unacceptable character"),
        ("a: &x [*x]\n", "aliases that repeat each other or themselves"),
        ("[" * 3000, "nesting without end"),
    ],
)
def test_what_is_no_document_is_one_fault(text: str, found: str) -> None:
    (fault,) = faults_in(text)
    assert fault.found.startswith(found)


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [" + ",".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 12)]
    (fault,) = faults_in("\n".join(lines))
    assert fault.wanted == "a tree of values"


def test_a_key_written_twice_is_refused_at_its_second_line() -> None:
    text = json.dumps(job_document(), indent=1).replace('"kind": "TPUJob",', '"kind": "TPUJob",\n "kind": "TPUJob",')
    (fault,) = faults_in(text)
    assert (fault.path, fault.found, fault.line) == ("kind", "the key a second time", 4)


def test_words_that_yaml_once_took_for_flags_stay_words() -> None:
    text = json.dumps(job_document()).replace('"trainer.main"', '"trainer.main", env: {A: no, B: on, C: 2026-01-01}')
    assert load_job(text).spec.train.env == {"A": "no", "B": "on", "C": "2026-01-01"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "abc"),
        ("MY_API_KEY", "abc"),
        ("WANDB_API_KEY", "0" * 40),
        ("DB_PASSWORD", "abc"),
        ("AWS_SECRET_ACCESS_KEY", "abc"),
        ("CLIENT_SECRET", "abc"),
        ("ANY", "hf_" + "a" * 30),
        ("ANY", "ghp_" + "a" * 36),
        ("ANY", "sk-" + "a" * 40),
        ("ANY", "-----BEGIN RSA PRIVATE KEY-----\nabc"),
        ("ANY", "postgres://user:pass@host/db"),
    ],
)
def test_a_secret_written_out_is_refused_with_the_reference_to_write(name: str, value: str) -> None:
    fault = the_fault(train={"entrypoint": "a.b", "env": {name: value}})
    assert fault.path == f"spec.train.env.{name}"
    assert f"secrets: {{{name}: {{secret: SECRET, key: KEY}}}}" in fault.hint
    assert value not in fault.describe()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PAD_TOKEN", "<pad>"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/secrets/key.json"),
        ("MAX_TOKENS", "100"),
        ("HF_TOKEN", ""),
        ("KEYS", "a,b"),
        ("ENDPOINT", "https://host:8080/path?x=a@b"),
    ],
)
def test_what_only_resembles_a_secret_is_let_through(name: str, value: str) -> None:
    assert faults_of(train={"entrypoint": "a.b", "env": {name: value}}) == []


@pytest.mark.parametrize(
    ("train", "place"),
    [
        ({"entrypoint": "a.b", "args": {"api_key": "tops3cret"}}, "args.api_key"),
        ({"entrypoint": "a.b", "args": {"wandb": {"access_token": "tops3cret"}}}, "args.wandb.access_token"),
        ({"entrypoint": None, "command": ["train", "--api-key=tops3cret"]}, "command[1]"),
        ({"entrypoint": None, "command": ["train", "--hf-token", "tops3cret"]}, "command[2]"),
        ({"entrypoint": None, "command": ["env", "DB_PASSWORD=tops3cret", "train"]}, "command[1]"),
    ],
)
def test_a_secret_among_the_arguments_is_refused_by_its_name(train: dict[str, Any], place: str) -> None:
    fault = the_fault(train=train)
    assert fault.path == f"spec.train.{place}"
    assert "spec.train.secrets" in fault.hint
    assert "tops3cret" not in fault.describe()


@pytest.mark.parametrize(
    "train",
    [
        {"entrypoint": "a.b", "args": {"image_token": "<image>", "mask_token": "[MASK]", "token": ""}},
        {"entrypoint": None, "command": ["train", "--hf-token", "$(HF_TOKEN)", "--pad-token=<pad>", "--token-limit=9"]},
        {"entrypoint": None, "command": ["train", "--use-auth-token", "--steps", "many"]},
    ],
)
def test_arguments_that_only_resemble_a_secret_are_let_through(train: dict[str, Any]) -> None:
    assert faults_of(train=train) == []


def test_a_secret_in_a_source_or_a_comment_is_found_too() -> None:
    assert the_fault(data={"sources": [{"files": "https://me:pw@host/a.parquet"}]}).path == "spec.data.sources[0].files"
    (fault,) = faults_in(json.dumps(job_document()) + "\n# ghp_" + "a" * 36)
    assert (fault.line, fault.found) == (2, "a GitHub token")


def test_a_number_under_a_secrets_name_is_not_shown() -> None:
    fault = the_fault(train={"entrypoint": "a.b", "env": {"MY_API_KEY": 123456}})
    assert "123456" not in fault.describe()


def test_models_are_frozen_and_closed() -> None:
    job = load_job(json.dumps(job_document()))
    with pytest.raises(ValueError, match="frozen"):
        job.spec.data.epochs = 2  # type: ignore[misc]
    assert all(model.model_config["extra"] == "forbid" for model in StrictModel.__subclasses__())
