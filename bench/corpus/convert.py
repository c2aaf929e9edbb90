"""Writes a corpus once more in the format a contender wants.

python -m bench.corpus.convert FORMAT CORPUS TOKENIZER
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_ROW_TOKENS = 1_024
_TEXTS_PER_CALL = 1_024
_CHUNK_TOKENS = _ROW_TOKENS * 8_192


def _files(corpus: Path) -> list[Path]:
    return sorted((corpus / "parquet").glob("*.parquet"))


def _texts(path: Path, texts_per_call: int = _TEXTS_PER_CALL) -> Iterator[list[str]]:
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path).iter_batches(texts_per_call, columns=["text"]):
        yield batch["text"].to_pylist()


def _jsonl(corpus: Path, target: Path, _tokenizer: Path) -> None:
    for path in _files(corpus):
        with (target / f"{path.stem}.jsonl").open("w", encoding="utf-8") as out:
            _write_lines(path, out)


def _jsonl_zst(corpus: Path, target: Path, _tokenizer: Path) -> None:
    import zstandard

    for path in _files(corpus):
        with (
            (target / f"{path.stem}.jsonl.zst").open("wb") as raw,
            zstandard.ZstdCompressor(3).stream_writer(raw) as packed,
            io.TextIOWrapper(packed, encoding="utf-8") as out,
        ):
            _write_lines(path, out)


def _write_lines(path: Path, out: io.TextIOBase | Any) -> None:
    for texts in _texts(path):
        out.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)


def _array_record(corpus: Path, target: Path, _tokenizer: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    for path in _files(corpus):
        writer = ArrayRecordWriter(str(target / f"{path.stem}.array_record"), "group_size:1")
        for texts in _texts(path):
            for text in texts:
                writer.write(text.encode())
        writer.close()


def _mds_text(corpus: Path, target: Path, _tokenizer: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(target), columns={"text": "str"}) as out:
        for path in _files(corpus):
            for texts in _texts(path):
                for text in texts:
                    out.write({"text": text})


def _mds_tokens(corpus: Path, target: Path, tokenizer: Path) -> None:
    """Write rows of ids, documents joined by the end token, as its users do for pretraining."""
    from streaming import MDSWriter

    with MDSWriter(out=str(target), columns={"tokens": f"ndarray:int32:{_ROW_TOKENS}"}) as out:
        rest = np.zeros(0, np.int32)
        for path in _files(corpus):
            for ids in _ids(path, tokenizer):
                joined = np.concatenate((rest, ids))
                whole = len(joined) // _ROW_TOKENS * _ROW_TOKENS
                for row in joined[:whole].reshape(-1, _ROW_TOKENS):
                    out.write({"tokens": row})
                rest = joined[whole:]


def _litdata_tokens(corpus: Path, target: Path, tokenizer: Path) -> None:
    from litdata import optimize
    from litdata.streaming.item_loader import TokensLoader

    optimize(
        fn=partial(_tensors, tokenizer=tokenizer),
        inputs=[str(path) for path in _files(corpus)],
        output_dir=str(target),
        chunk_size=_CHUNK_TOKENS,
        item_loader=TokensLoader(block_size=_ROW_TOKENS),
        num_workers=1,
        start_method="spawn",
        verbose=False,
    )


def _tensors(path: str, tokenizer: Path) -> Iterator[Any]:
    import torch

    for ids in _ids(Path(path), tokenizer):
        yield torch.from_numpy(ids)


def _ids(path: Path, tokenizer: Path) -> Iterator[npt.NDArray[np.int32]]:
    """Yield the ids of some documents at a time, each followed by the end token."""
    from tokenizers import Tokenizer

    from bench.corpus.tokenizers import END_TOKEN

    reference = Tokenizer.from_file(str(tokenizer))
    end = reference.token_to_id(END_TOKEN)
    for texts in _texts(path):
        encodings = reference.encode_batch_fast(texts, add_special_tokens=False)
        yield np.concatenate([np.array([*encoding.ids, end], np.int32) for encoding in encodings])


CONVERSIONS: dict[str, Callable[[Path, Path, Path], None]] = {
    "jsonl": _jsonl,
    "jsonl-zst": _jsonl_zst,
    "array-record": _array_record,
    "mds-text": _mds_text,
    "mds-tokens": _mds_tokens,
    "litdata-tokens": _litdata_tokens,
}


def main(arguments: list[str]) -> int:
    """Run one conversion into the directory of its name beside the parquet files."""
    name, corpus, tokenizer = arguments
    target = Path(corpus) / name
    if name not in {
        "mds-text",
        "mds-tokens",
        "litdata-tokens",
    }:  # these make it themselves and refuse one that is there
        target.mkdir(parents=True)
    CONVERSIONS[name](Path(corpus), target, Path(tokenizer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
