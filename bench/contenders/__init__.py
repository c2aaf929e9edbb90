"""The contenders, one file each; a file serves several entries of the table where an option tells them apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: What a contender begins with. Only contenders of one kind are ranked against each other.
Kind = Literal["raw", "text", "tokens"]


@dataclass(frozen=True)
class Contender:
    """One line of the tables.

    Attributes:
        name: What it is called there and on the command line.
        module: File under ``bench/contenders``.
        kind: ``raw``: tokenizer alone, texts in memory. ``text``: files of text to batches. ``tokens``: from ids made
            before, by a conversion or a cache.
        formats: What must be made of the corpus first; conversions are timed.
        layouts: Layouts it can deliver.
        options: What tells it from other entries of the same file.
        is_prepared: Whether an epoch of its own comes first, which fills its cache and is timed as a conversion.
    """

    name: str
    module: str
    kind: Kind
    formats: tuple[str, ...] = ("parquet",)
    layouts: tuple[Literal["pad", "pack"], ...] = ("pad",)
    options: dict[str, str | int] = field(default_factory=dict)
    is_prepared: bool = False


def _ours(name: str, engine: str, layouts: tuple[Literal["pad", "pack"], ...], **options: str | int) -> Contender:
    kind: Kind = "tokens" if options.get("cache") else "text"
    return Contender(
        name, "ours", kind, ("parquet",), layouts, {"engine": engine, **options}, is_prepared="cache" in options
    )


CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        Contender("raw reference, Rust threads", "raw_reference", "raw", layouts=("pad", "pack")),
        Contender(
            "raw reference, Python threads",
            "raw_reference",
            "raw",
            layouts=("pad", "pack"),
            options={"threads": "python"},
        ),
        Contender("raw fastokens", "raw_fast", "raw", layouts=("pad", "pack"), options={"engine": "fastokens"}),
        Contender("raw gigatoken", "raw_fast", "raw", layouts=("pad", "pack"), options={"engine": "gigatoken"}),
        Contender("datasets", "datasets_plain", "text"),
        Contender("datasets, 2 workers", "datasets_plain", "text", options={"workers": 2}),
        Contender("datasets, numpy", "datasets_numpy", "text"),
        Contender("datasets reader, 2 tokenising threads", "datasets_threads", "text"),
        Contender("Grain, parquet", "grain_parquet", "text", layouts=("pad", "pack")),
        Contender("Grain, ArrayRecord", "grain_array_record", "text", ("array-record",), ("pad", "pack")),
        Contender(
            "Grain, ArrayRecord, 2 workers", "grain_array_record", "text", ("array-record",), options={"workers": 2}
        ),
        Contender("MosaicML, text", "mosaicml_text", "text", ("mds-text",)),
        Contender("MosaicML, text, 2 workers", "mosaicml_text", "text", ("mds-text",), options={"workers": 2}),
        Contender("LitData, text", "litdata_text", "text"),
        Contender("LitData, text, 2 workers", "litdata_text", "text", options={"workers": 2}),
        _ours("ours, reference engine", "reference", ("pad", "pack")),
        _ours("ours, fast engine", "auto", ("pad", "pack")),
        _ours("ours, fast engine, torch", "auto", ("pad",), backend="torch_xla"),
        _ours("ours, fast engine, JAX", "auto", ("pad",), backend="jax"),
        Contender("MosaicML, tokens", "mosaicml_tokens", "tokens", ("mds-tokens",)),
        Contender("LitData, tokens", "litdata_tokens", "tokens", ("litdata-tokens",)),
        _ours("ours, token cache", "auto", ("pad", "pack"), cache="yes"),
    )
}
