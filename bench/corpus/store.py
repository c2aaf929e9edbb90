"""Corpora on disk: made once, found again by what they were made from."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from bench.corpus import machine_text, synthetic, tokenizers

CorpusKind = Literal["machine", "latin", "ideographs", "numbered"]
_FAMILY: dict[CorpusKind, tokenizers.Family] = {
    "machine": "byte-level",
    "latin": "byte-level",
    "ideographs": "cjk",
    "numbered": "byte-level",
}
#: Shares of the rows in the files: each file twice the one before, so that nothing divides evenly.
_FILE_SHARES = tuple(2**step for step in range(8))
_ROW_GROUP_ROWS = 1_000
_SEED = 20_261_129
#: Raised when a corpus of the same name would hold other bytes.
_VERSION = 1
#: A file of this name is written last: a directory without it is the rest of an interrupted run.
DONE = ".done.json"


@dataclass(frozen=True)
class Corpus:
    """One corpus in its directory.

    Attributes:
        kind: What it is made of.
        directory: Where, one directory per format in it.
        num_documents: Rows.
        num_bytes: Bytes of text.
        non_ascii_fraction: Documents with a character that is not ASCII.
        sha256: Digest of all texts in order.
    """

    kind: CorpusKind
    directory: str
    num_documents: int
    num_bytes: int
    non_ascii_fraction: float
    sha256: str

    def tokenizer(self, family: tokenizers.Family | None = None) -> str:
        """Return the path of the tokenizer of a family, trained on this corpus if need be."""
        family = family or _FAMILY[self.kind]
        path = Path(self.directory) / "tokenizers" / f"{family}.json"
        if not path.exists():
            tokenizers.train(family, self._sample(), path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)
        return str(path)

    def convert(self, format_name: str) -> float:
        """Make the corpus in a format if it is not there; return the seconds it took when it was made."""
        done = Path(self.directory) / format_name / DONE
        if not done.exists():
            shutil.rmtree(done.parent, ignore_errors=True)
            started = time.perf_counter()
            command = [sys.executable, "-m", "bench.corpus.convert", format_name, self.directory, self.tokenizer()]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            done.write_text(json.dumps({"seconds": time.perf_counter() - started}))
        return float(json.loads(done.read_text())["seconds"])

    def _sample(self) -> Iterator[str]:
        import pyarrow.parquet as pq

        files = sorted(Path(self.directory, "parquet").glob("*.parquet"))
        budget = tokenizers.SAMPLE_CHARACTERS[_FAMILY[self.kind]] // len(files)
        for path in files:
            taken = 0
            for batch in pq.ParquetFile(path).iter_batches(_ROW_GROUP_ROWS, columns=["text"]):
                for text in batch["text"].to_pylist():
                    taken += len(text)
                    yield text
                if taken > budget:
                    break


def open_corpus(store: Path, kind: CorpusKind, num_bytes: int = 0) -> Corpus:
    """Return a corpus, made in the store if it is not there.

    Args:
        store: Directory of all corpora.
        kind: What it is made of.
        num_bytes: About how much text; the numbered corpus has a size of its own.
    """
    name = f"{kind}-{num_bytes // 1_000_000}mb-v{_VERSION}" if num_bytes else f"{kind}-v{_VERSION}"
    directory = store / name
    done = directory / DONE
    if not done.exists():
        shutil.rmtree(directory, ignore_errors=True)
        corpus = _make(directory, kind, num_bytes)
        done.write_text(json.dumps(asdict(corpus)))
    found = json.loads(done.read_text())
    return Corpus(**{**found, "directory": str(directory)})


def _make(directory: Path, kind: CorpusKind, num_bytes: int) -> Corpus:
    if kind == "numbered":
        files = synthetic.numbered_rows(_SEED)
    else:
        documents = list(_documents(kind, num_bytes))
        files = _shared_out(documents)
    _write_parquet(directory / "parquet", files)
    texts = [text for file in files for text in file]
    digest = hashlib.sha256()
    total = 0
    for text in texts:
        encoded = text.encode()
        total += len(encoded)
        digest.update(encoded + b"\0")
    non_ascii = sum(not text.isascii() for text in texts) / len(texts)
    return Corpus(kind, str(directory), len(texts), total, non_ascii, digest.hexdigest())


def _documents(kind: CorpusKind, num_bytes: int) -> Iterable[str]:
    if kind == "machine":
        return machine_text.machine_text(_SEED, num_bytes)
    if kind == "ideographs":
        return synthetic.ideographs(_SEED, num_bytes)
    return synthetic.latin_like(_SEED, num_bytes)


def _shared_out(documents: list[str]) -> list[list[str]]:
    """Return the documents in files of unequal size, none of which holds one kind of text only."""
    total = sum(_FILE_SHARES)
    files: list[list[str]] = [[] for _ in _FILE_SHARES]
    turns = [number for number, share in enumerate(_FILE_SHARES) for _ in range(share)]
    # A stride prime to the number of turns spreads each file's turns over the whole.
    for position, text in enumerate(documents):
        files[turns[position * 101 % total]].append(text)
    return files


def _write_parquet(directory: Path, files: list[list[str]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    start = 0
    for number, texts in enumerate(files):
        ids = pa.array(range(start, start + len(texts)), pa.int64())
        table = pa.table({"id": ids, "text": pa.array(texts, pa.string()), "source": pa.array(["bench"] * len(texts))})
        pq.write_table(table, directory / f"part-{number:02d}.parquet", row_group_size=_ROW_GROUP_ROWS)
        start += len(texts)
