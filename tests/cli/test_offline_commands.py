"""Commands that need no cluster: what they print, where they print it, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.launcher.builders import IMAGE, spec_text
from tpulaunch.cli.commands import COMMANDS
from tpuworker.spec import load_job


def write(directory: Path, text: str, name: str = "job.yaml") -> str:
    (directory / name).write_text(text)
    return name


@pytest.fixture
def job(directory: Path) -> str:
    return write(directory, spec_text(metadata={"name": "tiny", "namespace": "ml"}))


def test_a_valid_spec_is_summed_up_on_stdout_and_remarked_on_stderr(tpulaunch: Run, job: str) -> None:
    ended = tpulaunch("validate", job)
    assert ended.code == 0
    assert ended.out == (
        "job.yaml: valid: tiny: 1 slice of v6e 4x4, 4 hosts each (ct6e-standard-4t), 16 devices; "
        "batch [64, 16], 16 rows a host\n"
    )
    assert "job.yaml: note: spec.checkpoint: none" in ended.err


def test_validation_needs_no_image_but_says_so(tpulaunch: Run, directory: Path) -> None:
    ended = tpulaunch("validate", write(directory, spec_text(worker={"image": None})))
    assert ended.code == 0
    assert "spec.worker.image: none, which is enough for run --local" in ended.err


def test_every_fault_of_every_file_is_reported_with_file_and_line(tpulaunch: Run, directory: Path, job: str) -> None:
    bad = write(directory, spec_text(slice={"topology": "4x5"}, train={"entrypoint": "x"}), "bad.yaml")
    worse = write(directory, "- a list\n", "worse.yaml")
    ended = tpulaunch("validate", bad, job, worse)
    assert ended.code == 2
    assert ended.out.startswith("job.yaml: valid")
    lines = ended.err.splitlines()
    assert any(
        line.startswith("bad.yaml:10: spec.slice.topology: found '4x5'; wanted a v6e topology") for line in lines
    )
    assert any(line.startswith("bad.yaml:29: spec.train.entrypoint: found 'x'") for line in lines)
    assert "worse.yaml: document: found a list; wanted a mapping with apiVersion, kind, metadata and spec" in lines


def test_validation_sees_what_only_the_cluster_would_refuse(tpulaunch: Run, directory: Path) -> None:
    ended = tpulaunch("validate", write(directory, spec_text(metadata={"name": "n" * 48}, worker={"memory_gib": 700})))
    assert ended.code == 2
    assert "metadata.name: found a name of 48 characters; wanted at most 47" in ended.err
    assert "spec.worker.memory_gib: found 700 GiB a host" in ended.err


def test_validation_speaks_json(tpulaunch: Run, job: str) -> None:
    (summary,) = json.loads(tpulaunch("validate", job, "-o", "json").out)
    assert summary["devices"] == 16
    assert summary["globalBatch"] == [64, 16]


def test_rendering_prints_the_object_and_nothing_else_on_stdout(tpulaunch: Run, job: str) -> None:
    ended = tpulaunch("render", job)
    assert ended.code == 0
    assert yaml.safe_load(ended.out)["metadata"]["name"] == "tiny"


def test_rendering_takes_stdin_the_kubectl_flag_and_several_files(tpulaunch: Run, job: str) -> None:
    other = spec_text(metadata={"name": "other"})
    ended = tpulaunch("render", "-f", job, "-f", "-", stdin=other)
    assert [value["metadata"]["name"] for value in yaml.safe_load_all(ended.out)] == ["tiny", "other"]
    listed = json.loads(tpulaunch("render", "-o", "json", job, "-", stdin=other).out)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["tiny", "other"]


def test_the_same_object_as_yaml_json_and_name(tpulaunch: Run, job: str) -> None:
    as_json = json.loads(tpulaunch("render", job, "-o", "json").out)
    assert as_json == yaml.safe_load(tpulaunch("render", job).out)
    assert tpulaunch("render", job, "-o", "name").out == "jobset.jobset.x-k8s.io/tiny\n"


def test_a_submission_accepts_changed_data_only_if_told_to_and_says_which_it_is(tpulaunch: Run, job: str) -> None:
    def variables(*flags: str) -> dict[str, str]:
        sent = json.loads(tpulaunch("submit", job, "--dry-run=client", "-o", "json", *flags).out)
        pod = sent["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        return {
            each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
            for each in pod["containers"][0]["env"]
        }

    assert variables("--accept-changed-data") == variables() | {
        "TPULAUNCH_ACCEPT_CHANGED_DATA": "1",
        "TPULAUNCH_SUBMISSION": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
    }


def test_a_namespace_flag_goes_before_the_specs(tpulaunch: Run, job: str) -> None:
    assert yaml.safe_load(tpulaunch("render", job).out)["metadata"]["namespace"] == "ml"
    assert yaml.safe_load(tpulaunch("render", job, "-n", "other").out)["metadata"]["namespace"] == "other"


def test_nothing_is_rendered_unless_every_file_is_good(tpulaunch: Run, directory: Path, job: str) -> None:
    bad = write(directory, spec_text(worker={"image": None}), "bad.yaml")
    ended = tpulaunch("render", job, bad)
    assert (ended.code, ended.out) == (2, "")
    assert "bad.yaml:14: spec.worker.image: found no image" in ended.err


def test_an_unnamed_job_renders_under_the_login(
    tpulaunch: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "Ana.Lópezz_92")
    path = write(directory, spec_text(metadata={"name": None}))
    name = yaml.safe_load(tpulaunch("render", path).out)["metadata"]["name"]
    assert name.startswith("ana-lopezz-92-")


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("No username set")])
def test_a_container_without_a_login_still_names_the_job(
    tpulaunch: Run, directory: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def nobody() -> str:
        raise error

    monkeypatch.setattr("getpass.getuser", nobody)
    rendered = yaml.safe_load(tpulaunch("render", write(directory, spec_text(metadata={"name": None}))).out)
    assert rendered["metadata"]["name"].startswith("job-")
    assert "tpulaunch.dev/submitter" not in rendered["metadata"]["annotations"]


@pytest.mark.parametrize("command", ["validate", "render", "plan"])
@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        ((), "", "no FILE given"),
        (("absent.yaml",), "", "absent.yaml: no such file in "),
        (("folder",), "", "folder: a directory; wanted one file, for example inside.yaml"),
        (("-",), "", "stdin: document: found no document; wanted one TPUJob document"),
        (
            ("-",),
            "a: 1\n---\nb: 2\n",
            "found 2 documents; wanted one TPUJob document; put each job into a file of its own",
        ),
        (("-",), "{", "stdin:"),
        (("-",), "\x00", "stdin: document:"),
        (("latin.yaml",), "", "latin.yaml: byte 3 is not UTF-8"),
    ],
)
def test_what_is_no_spec_is_refused_with_its_reason(
    tpulaunch: Run, directory: Path, *, command: str, arguments: tuple[str, ...], stdin: str, words: str
) -> None:
    (directory / "folder").mkdir()
    (directory / "folder/inside.yaml").write_text("")
    (directory / "latin.yaml").write_bytes("a: \xe9".encode("latin-1"))
    before = sorted(path.name for path in directory.rglob("*"))
    ended = tpulaunch(command, *arguments, stdin=stdin)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert "Traceback" not in ended.err
    assert sorted(path.name for path in directory.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("validate", "--nonsense"), ("tpus", "--chips", "x"), ("completion", "tcsh")]
)
def test_a_wrong_call_ends_with_2_and_shows_the_usage(tpulaunch: Run, arguments: tuple[str, ...]) -> None:
    ended = tpulaunch(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "Usage: tpulaunch" in ended.err


@pytest.mark.parametrize(
    ("command", "output"), [("validate", "yaml"), ("render", "table"), ("tpus", "yaml"), ("plan", "name")]
)
def test_a_format_that_a_command_has_not_is_refused(tpulaunch: Run, job: str, command: str, output: str) -> None:
    ended = tpulaunch(command, *(["-o", output] if command == "tpus" else [job, "-o", output]))
    assert (ended.code, ended.out) == (2, "")
    assert f"-o {output} is not for {command}" in ended.err


def test_help_lists_every_command_and_the_exit_codes(tpulaunch: Run) -> None:
    ended = tpulaunch("--help")
    assert ended.code == 0
    assert all(f"\n  {name} " in ended.out for name in COMMANDS)
    assert "Exit codes: 0 good" in ended.out


def test_the_version_is_the_distributions(tpulaunch: Run) -> None:
    assert tpulaunch("--version").out == "tpulaunch 0.1.0\n"


def test_the_schema_is_json(tpulaunch: Run) -> None:
    schema = json.loads(tpulaunch("schema").out)
    assert schema["title"] == "TPUJob"
    assert "$schema" in schema


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_each_shell_gets_its_completion_script(tpulaunch: Run, shell: str) -> None:
    ended = tpulaunch("completion", shell)
    assert ended.code == 0
    assert "_TPULAUNCH_COMPLETE" in ended.out


def test_completion_knows_the_commands(tpulaunch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TPULAUNCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "tpulaunch va")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert tpulaunch().out.split() == ["validate"]


def test_the_table_of_tpus_has_a_line_for_each_generation(tpulaunch: Run) -> None:
    lines = tpulaunch("tpus").out.splitlines()
    assert [line.split()[0] for line in lines] == ["GENERATION", "v4", "v5e", "v5p", "v6e", "tpu7x"]


def test_the_slices_of_a_generation_are_listed_by_any_of_its_names(tpulaunch: Run) -> None:
    listed = tpulaunch("tpus", "trillium", "-o", "json")
    assert listed.out == tpulaunch("tpus", "v6e", "-o", "json").out
    assert len(json.loads(listed.out)) == 9
    assert json.loads(listed.out)[4] == {
        "generation": "v6e",
        "topology": "4x4",
        "chips": 16,
        "hosts": 4,
        "machine": "ct6e-standard-4t",
        "chipsPerHost": 4,
        "devices": 16,
        "ram": "720Gi",
        "acceleratorType": "v6e-16",
    }


def test_slices_are_found_by_chips_and_the_nearest_are_named(tpulaunch: Run) -> None:
    assert tpulaunch("tpus", "v5p", "--chips", "256", "-o", "name").out.split() == [
        "v5p/4x4x16/ct5p-hightpu-4t",
        "v5p/4x8x8/ct5p-hightpu-4t",
    ]
    ended = tpulaunch("tpus", "v6e", "--chips", "24")
    assert ended.code == 2
    assert "no slice has 24 chips; the nearest have 8, 16, 32" in ended.err


def test_init_writes_a_spec_that_is_valid_and_explains_itself(tpulaunch: Run, directory: Path) -> None:
    ended = tpulaunch("init")
    assert (ended.code, ended.out) == (0, "")
    text = (directory / "job.yaml").read_text()
    assert load_job(text).spec.worker.backend == "torch_xla"
    assert text.count("#") > 10


def test_init_replaces_nothing_unless_asked(tpulaunch: Run, directory: Path) -> None:
    path = write(directory, "precious")
    ended = tpulaunch("init", path)
    assert ended.code == 2
    assert (directory / path).read_text() == "precious"
    assert tpulaunch("init", path, "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--topology", "3x4"), "--topology: found 3x4; wanted a v6e topology; the nearest are 2x4, 4x4, 2x2"),
        (("--generation", "v5e-16"), "write generation: v5e with the topology written out"),
        (("--topology", "2x4"), "--machine: found none; wanted ct6e-standard-4t or ct6e-standard-8t"),
        (("--name", "No_Name"), "metadata.name"),
        (("--image", IMAGE, "absent/job.yaml"), "absent/job.yaml: no such file or directory"),
    ],
)
def test_init_refuses_what_cannot_be_and_writes_nothing(
    tpulaunch: Run, directory: Path, arguments: tuple[str, ...], words: str
) -> None:
    ended = tpulaunch("init", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert list(directory.iterdir()) == []


def test_a_literal_secret_is_refused_everywhere_and_never_repeated(tpulaunch: Run, directory: Path) -> None:
    token = "hf_" + "a1B2" * 8
    env = {"HF_TOKEN": token, "MY_API_KEY": "tops3cret-value", "PROXY": "http://me:hunter2@proxy:80"}
    path = write(directory, spec_text(train={"entrypoint": "a.b", "env": env}))
    for command in ("validate", "render", "plan"):
        ended = tpulaunch(command, path)
        assert (ended.code, ended.out) == (2, "")
        assert all(f"spec.train.env.{name}" in ended.err for name in env)
        assert "secrets: {HF_TOKEN: {secret: SECRET, key: KEY}}" in ended.err
        assert not [value for value in (token, "tops3cret", "hunter2") if value in ended.err]
