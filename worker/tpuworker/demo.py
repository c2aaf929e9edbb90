"""Makes the embedded default job: a small real corpus, a tokenizer trained on it, and a spec that reads both.

    python -m tpuworker.demo DIR [--backend jax|torch_xla]

The text is what every Python installation carries: the sources and documentation of the standard library and of the
installed packages. The same installation gives the same bytes.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tpuworker.errors import EXIT_ERROR, DataError, Fault, WorkerError

#: Enough text for a few hundred steps of a tiny model, little enough to be made in seconds.
CORPUS_BYTES = 8_000_000
LEAST_CORPUS_BYTES = 5_000_000
_FILE_BYTES = (400, 60_000)
#: A document is a run of whole lines of about this length, so that most fill a short row and some do not.
_DOCUMENT_CHARACTERS = 700
_ENDINGS = frozenset({".py", ".md", ".rst", ".txt"})
#: Shares of the files of the corpus: uneven, so that files < hosts or hosts < files is no special case.
_FILE_SHARES = (1, 2, 3, 5, 8, 13)
_ROW_GROUP_ROWS = 500
VOCABULARY_SIZE = 4096
END_TOKEN = "<|end|>"
PAD_TOKEN = "<|pad|>"

_SPEC = """\
# The embedded default: two v5e hosts learn the text of this machine's Python packages.
apiVersion: tpulaunch.dev/v1alpha1
kind: TPUJob
metadata: {{name: tiny-lm}}
spec:
  slice: {{generation: v5e, topology: 2x4, machine: ct5lp-hightpu-4t}}   # two hosts with 4 chips each
  worker: {{backend: {backend}}}
  data:
    task: pretrain
    sources:
    - {{files: "{directory}/corpus/part-*.parquet"}}
    tokenizer: {{path: "{directory}/tokenizer.json", eos_token: "{end}", pad_token: "{pad}"}}
    max_length: 128
    global_batch_size: 32
    shuffle: {{seed: 42}}
  preflight: {{batches: 16, max_compiles: 1}}
  train:
    entrypoint: tpuworker.training.{module}.main
    args: {{learning_rate: 0.003, width: 128, layers: 2}}
    steps: 50
"""


def make_demo(directory: Path, backend: str) -> Path:
    """Write corpus, tokenizer and spec into a directory and return the spec's path.

    Args:
        directory: Where it goes; made if absent. What an earlier call made there is replaced.
        backend: ``jax`` or ``torch_xla``.

    Raises:
        DataError: The installation carries too little text, or the directory cannot be written.
    """
    texts = list(_documents(CORPUS_BYTES))
    num_bytes = sum(len(text) for text in texts)
    if num_bytes < LEAST_CORPUS_BYTES:
        raise DataError(
            [
                Fault(
                    path="the Python installation",
                    found=f"{num_bytes:,} bytes of text",
                    wanted=f"at least {LEAST_CORPUS_BYTES:,}",
                    hint="install tpulaunch with an extra: pip install 'tpulaunch[jax]'",
                )
            ]
        )
    try:
        _write_corpus(directory / "corpus", texts)
        _train_tokenizer(directory / "tokenizer.json", texts)
        spec_path = directory / "job.yaml"
        spec_path.write_text(
            _SPEC.format(
                backend=backend,
                directory=directory.resolve(),
                end=END_TOKEN,
                pad=PAD_TOKEN,
                module={"jax": "jax_lm", "torch_xla": "torch_xla_lm"}[backend],
            )
        )
    except OSError as error:
        raise DataError(
            [Fault(str(directory), str(error), "a directory with room for 20 MB", "name another one")]
        ) from error
    return spec_path


def _documents(most_bytes: int) -> Iterator[str]:
    """Yield passages of the installation's texts, packages first, in the order of their paths, each file once."""
    paths = sysconfig.get_paths()
    seen: set[str] = set()
    num_bytes = 0
    for root in (paths["purelib"], paths["stdlib"]):
        for path in sorted(Path(root).rglob("*")):
            if path.suffix not in _ENDINGS or not _FILE_BYTES[0] <= path.stat().st_size <= _FILE_BYTES[1]:
                continue
            try:
                text = path.read_text("utf-8")
            except (UnicodeDecodeError, OSError):
                continue
            if text not in seen:
                seen.add(text)
                num_bytes += len(text)
                yield from _passages(text)
            if num_bytes >= most_bytes:
                return


def _passages(text: str) -> Iterator[str]:
    passage: list[str] = []
    num_characters = 0
    for line in text.splitlines(keepends=True):
        passage.append(line)
        num_characters += len(line)
        if num_characters >= _DOCUMENT_CHARACTERS:
            yield "".join(passage)
            passage, num_characters = [], 0
    if passage:
        yield "".join(passage)


def _write_corpus(directory: Path, texts: list[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("part-*.parquet"):
        old.unlink()
    start = 0
    for number, share in enumerate(_FILE_SHARES):
        last = number == len(_FILE_SHARES) - 1
        end = len(texts) if last else start + len(texts) * share // sum(_FILE_SHARES)
        table = pa.table({"id": pa.array(range(start, end), pa.int64()), "text": pa.array(texts[start:end])})
        pq.write_table(table, directory / f"part-{number:02d}.parquet", row_group_size=_ROW_GROUP_ROWS)
        start = end


def _train_tokenizer(path: Path, texts: list[str]) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[END_TOKEN, PAD_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


def main(arguments: list[str]) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tpuworker.demo", description="Make the embedded default job.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--backend", choices=("jax", "torch_xla"), default="jax")
    options = parser.parse_args(arguments)
    try:
        spec_path = make_demo(options.directory, options.backend)
    except WorkerError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_ERROR
    sys.stdout.write(f"{spec_path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
