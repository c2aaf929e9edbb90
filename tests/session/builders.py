"""A small corpus with its tokenizer, and jobs over it; one device and tiny rows, so that a run takes a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.builders import job_document

ROWS_OF_FILES = (70, 50, 10)
BATCH, LENGTH = 8, 12
STEPS_PER_EPOCH = sum(ROWS_OF_FILES) // BATCH


def write_corpus(directory: Path) -> None:
    """Write three parquet files of unequal size and a tokenizer that knows their words."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [f"w{number}" for number in range(50)]
    vocabulary = {word: number for number, word in enumerate(["<end>", "<pad>", "<unk>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<end>", "<pad>", "<unk>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    first = 0
    for number, rows in enumerate(ROWS_OF_FILES):
        texts = [
            " ".join(words[(row * 7 + word) % 50] for word in range(3 + row % 11)) for row in range(first, first + rows)
        ]
        pq.write_table(pa.table({"text": texts}), directory / f"part-{number}.parquet", row_group_size=20)
        first += rows


def document_over(directory: Path, **sections: Any) -> dict[str, Any]:
    """Return the document of a job of one host with one device over the corpus."""
    data = {
        "sources": [{"files": f"{directory}/part-*.parquet"}],
        "tokenizer": {
            "path": f"{directory}/tokenizer.json",
            "engine": "reference",
            "eos_token": "<end>",
            "pad_token": "<pad>",
        },
        "max_length": LENGTH,
        "global_batch_size": BATCH,
        "shuffle": {"seed": 3},
    } | sections.pop("data", {})
    chosen: dict[str, Any] = {
        "slice": {"generation": "v5e", "topology": "1x1"},
        "preflight": {"batches": 4},
        "train": {"entrypoint": "trainer.main", "log_every_steps": 5},
    }
    for name, values in sections.items():
        chosen[name] = {**chosen.get(name, {}), **values}
    return job_document(data=data, **chosen)
