"""create_jax_dataset: shuffled jax arrays of one shape from TFDS and every other source, resumable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

jax = pytest.importorskip("jax")

from tests.api.builders import hub_like, in_memory, make_tokenizer, row_numbers, streaming, tokenised  # noqa: E402
from tpuworker.api import JaxDataset, create_jax_dataset, create_streaming_dataset  # noqa: E402
from tpuworker.errors import DataError, InputError, SpecError  # noqa: E402

pytestmark = pytest.mark.jax

LENGTH = 12
ROWS = 50


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TFDS dataset ``tiny_rows``, prepared as array_record without TensorFlow."""
    tfds = pytest.importorskip("tensorflow_datasets")
    directory = tmp_path_factory.mktemp("tfds")

    class TinyRows(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = directory
        code_path = None  # TFDS would look beside this file for checksums of downloads

        def _info(self) -> Any:
            tensor = tfds.features.Tensor(shape=(LENGTH,), dtype=np.int32)
            features = {"input_ids": tensor, "labels": tensor, "text": tfds.features.Text()}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _: Any) -> dict[str, Any]:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Iterator[Any]:
            for number in range(ROWS):
                ids = np.full(LENGTH, number, np.int32)
                yield number, {"input_ids": ids, "labels": ids + 1000, "text": f"row {number}"}

    TinyRows(data_dir=directory, file_format="array_record").download_and_prepare()
    return directory


def first_ids(batches: Any) -> list[int]:
    return [int(row[0]) for batch in batches for row in batch["input_ids"]]


def test_tfds_rows_come_shuffled_with_their_labels_and_the_remainder_dropped(tfds_dir: Path) -> None:
    rows = create_jax_dataset("tiny_rows", "train", 8, 1, data_dir=tfds_dir)
    batches = list(rows)
    assert len(batches) == len(rows) == ROWS // 8
    for batch in batches:
        assert tuple(batch) == ("input_ids", "labels")
        for array in batch.values():
            assert isinstance(array, jax.Array)
            assert (array.shape, array.dtype) == ((8, LENGTH), np.int32)
        assert (np.asarray(batch["labels"]) == np.asarray(batch["input_ids"]) + 1000).all()
    seen = first_ids(batches)
    assert len(set(seen)) == 48
    assert seen != sorted(seen)
    assert first_ids(rows) != seen


def test_tfds_texts_are_tokenised(tfds_dir: Path) -> None:
    rows = create_jax_dataset(
        "tfds:tiny_rows", "train", 10, 1, tokenizer=make_tokenizer(), max_length=LENGTH, data_dir=tfds_dir
    )
    batches = list(rows)
    assert sorted(n for batch in batches for n in row_numbers(np.asarray(batch["input_ids"]))) == list(range(ROWS))
    ids, labels = (np.asarray(batches[0][name]) for name in ("input_ids", "labels"))
    is_pad = ids == make_tokenizer().pad_token_id
    assert (labels == np.where(is_pad, -100, ids)).all()


def test_tfds_texts_stream_as_those_of_any_other_name(tfds_dir: Path) -> None:
    stream = create_streaming_dataset("tfds:tiny_rows", "train", make_tokenizer(), LENGTH, 1, 20, data_dir=tfds_dir)
    assert sorted(row_numbers([row["input_ids"] for row in stream])) == list(range(ROWS))


def test_tfds_slices_are_splits_and_what_is_not_there_is_refused(tfds_dir: Path) -> None:
    assert len(create_jax_dataset("tiny_rows", "train[:40%]", 5, 1, data_dir=tfds_dir)) == 4
    with pytest.raises(InputError, match=r"name: found 'tiny_rows', split 'test'.*array_record"):
        create_jax_dataset("tiny_rows", "test", 5, 1, data_dir=tfds_dir)
    with pytest.raises(InputError, match="name: found 'huge_rows'"):
        create_jax_dataset("tfds:huge_rows", "train", 5, 1, data_dir=tfds_dir)


def all_sources(path: Path) -> dict[str, Any]:
    hub_like(path / "hub", [20, 30])
    return {
        "directory": str(path / "hub"),
        "pattern": str(path / "hub/data/*.parquet"),
        "in memory": in_memory(ROWS),
        "streaming": streaming(ROWS),
    }


@pytest.mark.parametrize("kind", ["directory", "pattern", "in memory", "streaming"])
def test_every_other_source_gives_the_same_rows(kind: str, tmp_path: Path) -> None:
    rows = create_jax_dataset(
        all_sources(tmp_path)[kind], "train", 10, 1, tokenizer=make_tokenizer(), max_length=LENGTH, buffer_size=20
    )
    batches = list(rows)
    assert {(array.shape, str(array.dtype)) for batch in batches for array in batch.values()} == {
        ((10, LENGTH), "int32")
    }
    numbers = [n for batch in batches for n in row_numbers(np.asarray(batch["input_ids"]))]
    assert sorted(numbers) == list(range(ROWS))
    assert numbers != sorted(numbers)


def test_rows_that_are_tokenised_already_need_no_tokenizer(tmp_path: Path) -> None:
    source = tokenised(ROWS, LENGTH)
    source.to_parquet(str(tmp_path / "tokens.parquet"))
    for rows in (source, str(tmp_path / "tokens.parquet"), str(tmp_path)):
        batch = next(iter(create_jax_dataset(rows, "train", 10, 1)))
        ids, labels = np.asarray(batch["input_ids"]), np.asarray(batch["labels"])
        is_pad = ids == make_tokenizer().pad_token_id
        assert (labels == np.where(is_pad, -100, ids)).all()


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "arrow"])
def test_token_files_are_read_where_they_lie_with_their_own_labels(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tokenised(ROWS, LENGTH).map(lambda row: {"labels": [token + 1000 for token in row["input_ids"]], "id": 1})
    for number, part in enumerate((source.select(range(20)), source.select(range(20, ROWS)))):
        path = tmp_path / f"part-{number}.{kind}"
        if kind == "arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, part.data.schema) as writer:
                writer.write_table(part.with_format("arrow")[:])
        else:
            (part.to_parquet if kind == "parquet" else part.to_json)(str(path))
    monkeypatch.setattr("datasets.load_dataset", None)  # a copy would be made by it
    rows = create_jax_dataset(f"{tmp_path}/part-*.{kind}", "train", 10, 1)
    batches = [{name: np.asarray(array) for name, array in batch.items()} for batch in rows]
    assert all((batch["labels"] == batch["input_ids"] + 1000).all() for batch in batches)
    numbers = [number for batch in batches for number in row_numbers(batch["input_ids"])]
    assert sorted(numbers) == list(range(ROWS))
    assert numbers != sorted(numbers)
    resumed = create_jax_dataset(f"{tmp_path}/part-*.{kind}", "train", 10, 1)
    resumed.load_state_dict(rows.state_dict(num_batches=2))
    assert first_rows(resumed) == [batch["input_ids"].tolist() for batch in batches[2:]]


def test_a_token_file_without_a_column_that_the_first_has_is_named(tmp_path: Path) -> None:
    source = tokenised(20, LENGTH)
    source.to_parquet(str(tmp_path / "a.parquet"))
    source.remove_columns("attention_mask").to_parquet(str(tmp_path / "b.parquet"))
    with pytest.raises(DataError, match=r"b\.parquet.*attention_mask"):
        list(create_jax_dataset(f"{tmp_path}/*.parquet", "train", 5, 1))


def test_token_files_of_no_tokens_or_of_other_lengths_are_refused(tmp_path: Path) -> None:
    name = hub_like(tmp_path / "texts", [20])
    with pytest.raises(InputError, match="found columns id, text; wanted a column 'input_ids'; tokenise first"):
        create_jax_dataset(name, "train", 5, 1)
    (tmp_path / "rows.jsonl").write_text('{"input_ids": [1, 2, 3]}\n' * 5 + '{"input_ids": [1, 2]}\n')
    with pytest.raises(DataError, match="a row of 2 tokens; wanted 3"):
        list(create_jax_dataset(str(tmp_path / "rows.jsonl"), "train", 6, 1))
    (tmp_path / "words.jsonl").write_text('{"input_ids": "one"}\n')
    with pytest.raises(SpecError, match="input_ids of type string; wanted lists of token ids"):
        create_jax_dataset(str(tmp_path / "words.jsonl"), "train", 1, 1)


def test_the_four_arguments_that_programs_give_are_enough_over_a_stream() -> None:
    stream = tokenised(ROWS).to_iterable_dataset(num_shards=2)
    numbers = [n for batch in create_jax_dataset(stream, "train", 10, 1) for n in row_numbers(batch["input_ids"])]
    assert sorted(numbers) == list(range(ROWS))
    assert numbers != sorted(numbers)


def test_resume_is_exact() -> None:
    def make() -> JaxDataset:
        return create_jax_dataset(tokenised(ROWS), "train", 5, 9)

    whole = first_rows(make())
    first = make()
    taken = first_rows(islice(first, 4))
    second = make()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert taken + first_rows(second) == whole
    with pytest.raises(DataError, match="seed"):
        create_jax_dataset(tokenised(ROWS), "train", 5, 10).load_state_dict(first.state_dict())


def test_orbax_keeps_the_state_beside_the_weights(tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("orbax.checkpoint")
    args = checkpoint.args
    whole = first_rows(create_jax_dataset(tokenised(ROWS), "train", 5, 9))
    rows = create_jax_dataset(tokenised(ROWS), "train", 5, 9)
    taken = first_rows(islice(rows, 4))
    weights = {"w": jax.numpy.arange(3)}
    with checkpoint.CheckpointManager(tmp_path) as manager:
        both = args.Composite(weights=args.StandardSave(weights), data=args.JsonSave(rows.state_dict()))
        manager.save(4, args=both)
        manager.wait_until_finished()
        kept = manager.restore(4, args=args.Composite(weights=args.StandardRestore(weights), data=args.JsonRestore()))
    resumed = create_jax_dataset(tokenised(ROWS), "train", 5, 9)
    resumed.load_state_dict(kept["data"])
    assert taken + first_rows(resumed) == whole


def first_rows(batches: Any) -> list[list[list[int]]]:
    return [np.asarray(batch["input_ids"]).tolist() for batch in batches]


def test_batches_lie_as_the_sharding_says() -> None:
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
    batch = next(iter(create_jax_dataset(tokenised(ROWS), "train", 8, 1, sharding=sharding)))
    assert batch["input_ids"].sharding == sharding


def test_one_shape_is_compiled_once() -> None:
    compiled = jax.jit(lambda batch: batch["input_ids"].sum())
    for batch in create_jax_dataset(tokenised(ROWS), "train", 8, 1):
        compiled(batch)
    assert compiled._cache_size() == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_length": 8}, "max_length: found 8; wanted a tokenizer with it"),
        ({"tokenizer": "given"}, "max_length: found nothing; wanted the tokens of a row"),
        ({"batch_size": 51}, "50 rows"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, Any], words: str) -> None:
    arguments = {"name": tokenised(ROWS), "split": "train", "batch_size": 5, "seed": 1, **options}
    with pytest.raises((SpecError, InputError), match=words):
        create_jax_dataset(**arguments)
