"""torch loaders: long tensors of one shape, equal steps, exact resume on any world, and refusals with their reasons."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.api.builders import (  # noqa: E402
    hub_like,
    in_memory,
    make_tokenizer,
    row_numbers,
    streaming,
    texts,
    tokenised,
)
from tpuworker.api import (  # noqa: E402
    BatchLoader,
    PretrainDataset,
    StreamingDataset,
    create_dataloader,
    create_deterministic_dataloader,
    create_streaming_dataset,
)
from tpuworker.errors import DataError, InputError, SpecError  # noqa: E402

pytestmark = pytest.mark.torch_xla

LENGTH = 12
ROWS = 100


def token_stream(**options: Any) -> Any:
    return create_streaming_dataset(in_memory(ROWS), "train", make_tokenizer(), LENGTH, 3, 30, **options)


SOURCES: dict[str, Callable[[], Any]] = {
    "token stream": token_stream,
    "streaming dataset": lambda: StreamingDataset(token_stream(), 1, 0),
    "tokenised in memory": lambda: tokenised(ROWS),
    "tokenised in memory, torch format": lambda: tokenised(ROWS).with_format("torch"),
    "tokenised stream": lambda: tokenised(ROWS).to_iterable_dataset(num_shards=4),
    "texts in memory": lambda: PretrainDataset(make_tokenizer(), in_memory(ROWS), LENGTH),
    "texts streaming": lambda: PretrainDataset(make_tokenizer(), streaming(ROWS), LENGTH),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return SOURCES[request.param]


def global_batches(source: Callable[[], Any], world_size: int, batch_size: int, **options: Any) -> list[list[int]]:
    parts = [list(create_dataloader(source(), batch_size, world_size, rank, **options)) for rank in range(world_size)]
    assert len({len(part) for part in parts}) == 1
    return [[n for batch in step for n in row_numbers(batch["input_ids"])] for step in zip(*parts, strict=True)]


def test_batches_are_long_tensors_of_one_shape(source: Callable[[], Any]) -> None:
    batches = list(create_dataloader(source(), 8, 1, 0))
    assert len(batches) == ROWS // 8
    for batch in batches:
        assert {"input_ids", "attention_mask"} <= set(batch) <= {"input_ids", "attention_mask", "labels"}
        assert {(tensor.dtype, tuple(tensor.shape)) for tensor in batch.values()} == {(torch.int64, (8, LENGTH))}


def test_every_number_of_ranks_makes_the_same_global_batches(source: Callable[[], Any]) -> None:
    alone = global_batches(source, 1, 24)
    assert len({n for batch in alone for n in batch}) == 96
    assert global_batches(source, 2, 12) == alone
    assert global_batches(source, 4, 6) == alone


def test_resume_is_exact_on_another_number_of_ranks(source: Callable[[], Any]) -> None:
    whole = global_batches(source, 1, 24)
    loader = create_dataloader(source(), 24, 1, 0)
    taken = list(islice(loader, 2))
    state = json.loads(json.dumps(loader.state_dict()))
    rest = []
    for rank in range(2):
        resumed = create_dataloader(source(), 12, 2, rank)
        resumed.load_state_dict(state)
        rest.append(list(resumed))
    assert [row_numbers(batch["input_ids"]) for batch in taken] == whole[:2]
    joined = [[n for batch in step for n in row_numbers(batch["input_ids"])] for step in zip(*rest, strict=True)]
    assert joined == whole[2:]


def test_a_loader_is_a_loader_of_torch_that_drops_and_pins_nothing(source: Callable[[], Any]) -> None:
    loader = create_dataloader(source(), 8, 1, 0)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert isinstance(loader, BatchLoader)
    assert (loader.batch_size, loader.drop_last, loader.pin_memory, loader.num_workers) == (8, True, False, 0)


def test_the_length_is_known_unless_a_stream_has_it() -> None:
    assert len(create_dataloader(tokenised(ROWS), 8, 3, 1)) == ROWS // 24
    with pytest.raises(TypeError, match="does not tell"):
        len(create_dataloader(SOURCES["tokenised stream"](), 8, 3, 1))


def test_rows_of_a_streaming_dataset_are_long_tensors_and_every_rank_has_as_many() -> None:
    parts = [list(StreamingDataset(token_stream(), 3, rank)) for rank in range(3)]
    assert [len(part) for part in parts] == [33] * 3
    rows = [row for part in parts for row in part]
    assert {tuple(row) for row in rows} == {("input_ids", "attention_mask")}
    assert {(t.dtype, tuple(t.shape)) for row in rows for t in row.values()} == {(torch.int64, (LENGTH,))}
    assert len(set(row_numbers([row["input_ids"] for row in rows]))) == 99


def test_a_tokenised_dataset_comes_as_it_is_and_in_its_order() -> None:
    rows = list(StreamingDataset(tokenised(20), 1, 0))
    assert row_numbers([row["input_ids"] for row in rows]) == list(range(20))
    wanted = tokenised(20)
    assert [row["attention_mask"].tolist() for row in rows] == wanted["attention_mask"][:]


def test_rows_resume_exactly_too() -> None:
    whole = [row["input_ids"].tolist() for row in StreamingDataset(token_stream(), 2, 1)]
    first = StreamingDataset(token_stream(), 2, 1)
    taken = [row["input_ids"].tolist() for row in islice(first, 13)]
    second = StreamingDataset(token_stream(), 2, 1)
    second.load_state_dict(first.state_dict())
    assert taken + [row["input_ids"].tolist() for row in second] == whole


def test_the_state_of_an_earlier_batch_can_be_had_where_something_reads_ahead() -> None:
    loader = create_dataloader(tokenised(ROWS), 8, 1, 0)
    batches = list(loader)
    state = loader.state_dict(num_batches=3)
    resumed = create_dataloader(tokenised(ROWS), 8, 1, 0)
    resumed.load_state_dict(state)
    assert [b["input_ids"].tolist() for b in resumed] == [b["input_ids"].tolist() for b in batches[3:]]


def test_the_state_at_an_epochs_end_goes_on_with_the_next_epoch() -> None:
    loader = create_dataloader(token_stream(), 8, 1, 0)
    for _ in loader:
        pass
    state = loader.state_dict()
    second = [row_numbers(b["input_ids"]) for b in loader]
    resumed = create_dataloader(token_stream(), 8, 1, 0)
    resumed.load_state_dict(state)
    resumed.set_epoch(1)
    assert [row_numbers(b["input_ids"]) for b in resumed] == second


def test_another_epoch_than_that_of_a_loaded_state_is_refused_not_begun_anew() -> None:
    loader = create_dataloader(token_stream(), 8, 1, 0)
    next(iter(loader))
    resumed = create_dataloader(token_stream(), 8, 1, 0)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(SpecError, match="a state in epoch 0 was loaded"):
        resumed.set_epoch(1)


def test_a_pass_left_early_begins_again_and_one_left_at_its_last_batch_is_done() -> None:
    loader = create_dataloader(token_stream(), 10, 1, 0)
    first = [row_numbers(b["input_ids"]) for b in islice(loader, 3)]
    assert [row_numbers(b["input_ids"]) for b in islice(loader, 10)][:3] == first
    assert [row_numbers(b["input_ids"]) for b in islice(loader, 3)] != first


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drop_last": False}, "drop_last: found False; wanted True; a shorter last batch is another shape"),
        ({"pin_memory": True}, "pin_memory: found True; wanted False; pinned memory serves CUDA"),
        ({"num_workers": 2}, "num_workers: found 2 under torch_xla; wanted 0; threads of this process"),
        ({"num_workers": -1}, "num_workers: found -1"),
        ({"batch_size": 0}, "batch_size: found 0"),
        ({"batch_size": 101}, "batch_size|100 rows"),
        ({"shuffle": True}, "shuffle: found True over a stream, which has an order of its own"),
    ],
)
def test_arguments_that_would_break_a_run_are_refused_with_the_reason(options: dict[str, Any], words: str) -> None:
    with pytest.raises((SpecError, InputError), match=words):
        create_dataloader(token_stream(), **{"batch_size": 8, "world_size": 1, "rank": 0, **options})


def test_shuffle_is_refused_for_a_datasets_stream_and_serves_known_rows() -> None:
    with pytest.raises(SpecError, match="over a stream"):
        create_dataloader(tokenised(10).to_iterable_dataset(), 2, 1, 0, shuffle=True)
    loader = create_dataloader(tokenised(ROWS), 10, 1, 0, shuffle=True, seed=5)
    first, second = ([n for b in loader for n in row_numbers(b["input_ids"])] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second != list(range(ROWS))


def test_elsewhere_num_workers_are_threads_and_change_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [row_numbers(b["input_ids"]) for b in create_dataloader(token_stream(), 10, 1, 0)]
    monkeypatch.setattr("tpuworker.api.dataloader.runs_with_torch_xla", lambda: False)
    loader = create_dataloader(token_stream(), 10, 1, 0, num_workers=3)
    assert loader.num_workers == 3
    assert [row_numbers(b["input_ids"]) for b in loader] == wanted


def test_worker_processes_of_torchs_own_loader_are_refused() -> None:
    loader = torch.utils.data.DataLoader(StreamingDataset(token_stream(), 1, 0), batch_size=4, num_workers=1)
    with pytest.raises(Exception, match="fork hangs tokenizers"):
        next(iter(loader))


def test_torchs_own_loader_without_processes_reads_the_same_rows() -> None:
    loader = torch.utils.data.DataLoader(StreamingDataset(token_stream(), 1, 0), batch_size=10, drop_last=True)
    assert sorted(n for b in loader for n in row_numbers(b["input_ids"])) == list(range(ROWS))


def test_rows_of_another_length_are_refused_before_they_are_compiled() -> None:
    rows = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3], [4, 5, 6], [7, 8], [9, 9, 9]]})
    for source in (rows, rows.to_iterable_dataset()):
        with pytest.raises(DataError, match="a row of 2 tokens; wanted 3, as in the first row"):
            list(create_dataloader(source, 2, 1, 0))


def test_rows_without_tokens_are_refused_with_what_to_do() -> None:
    for source in (in_memory(3), streaming(3)):
        with pytest.raises(InputError, match=r"columns text, other; wanted a column 'input_ids'.*tokenise first"):
            StreamingDataset(source, 1, 0)


def test_the_world_of_a_streaming_dataset_is_that_of_its_loader() -> None:
    loader = create_dataloader(StreamingDataset(token_stream(), 4, 2), 5)
    assert (loader.world.world_size, loader.world.rank) == (4, 2)
    assert len(loader) == 5


def test_the_environment_tells_the_rank_where_the_caller_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    here = [row_numbers(b["input_ids"]) for b in create_dataloader(tokenised(ROWS), 5)]
    assert here[0] == [5, 6, 7, 8, 9]


def deterministic(seed: int, epoch: int, **options: Any) -> BatchLoader:
    return create_deterministic_dataloader(
        in_memory(ROWS), "train", 10, make_tokenizer(), seed, epoch, **{"max_length": LENGTH, **options}
    )


def order(loader: BatchLoader) -> list[int]:
    return [n for batch in loader for n in row_numbers(batch["input_ids"])]


def test_seed_and_epoch_are_the_whole_key_of_a_deterministic_order() -> None:
    assert order(deterministic(7, 2)) == order(deterministic(7, 2))
    orders = {(seed, epoch): tuple(order(deterministic(seed, epoch))) for seed in (1, 2) for epoch in (1, 2)}
    assert len(set(orders.values())) == 4
    assert all(sorted(each) == list(range(ROWS)) for each in orders.values())


def test_the_deterministic_order_is_frozen() -> None:
    assert order(deterministic(7, 2))[:10] == FROZEN


#: First global batch of seed 7, epoch 2. Another one would mean that runs do not go on as they began.
FROZEN = [7, 15, 21, 37, 45, 56, 63, 77, 86, 99]


def test_every_pass_of_a_deterministic_loader_is_its_epoch() -> None:
    loader = deterministic(7, 2)
    assert order(loader) == order(loader)
    with pytest.raises(SpecError, match="for which this loader was made"):
        loader.set_epoch(3)


def test_a_deterministic_loader_resumes_in_its_epoch_and_refuses_another() -> None:
    loader = deterministic(7, 2)
    whole = order(loader)
    taken = [row_numbers(b["input_ids"]) for b in islice(loader, 4)]
    state = loader.state_dict()
    resumed = deterministic(7, 2)
    resumed.load_state_dict(state)
    assert [n for batch in taken for n in batch] + order(resumed) == whole
    with pytest.raises(DataError, match="state: found epoch 2; wanted epoch 3"):
        deterministic(7, 3).load_state_dict(state)
    with pytest.raises(DataError, match="seed: found 8; wanted 7"):
        deterministic(8, 2).load_state_dict(state)


def test_a_deterministic_loader_whose_epoch_is_done_has_nothing_left() -> None:
    loader = deterministic(7, 2)
    order(loader)
    resumed = deterministic(7, 2)
    resumed.load_state_dict(loader.state_dict())
    assert order(resumed) == []
    assert len(order(resumed)) == ROWS


def test_a_deterministic_loader_reads_directories_as_well(tmp_path: Path) -> None:
    name = hub_like(tmp_path, [40, 60])
    loader = create_deterministic_dataloader(name, "train", 10, make_tokenizer(), 1, 0, max_length=LENGTH)
    assert sorted(order(loader)) == list(range(ROWS))


def test_a_length_is_asked_for_where_the_tokenizer_has_none() -> None:
    with pytest.raises(SpecError, match="max_length: found nothing, and a tokenizer that sets no limit"):
        create_deterministic_dataloader(in_memory(10), "train", 2, make_tokenizer(), 1, 0)


def test_the_limit_of_a_tokenizer_that_is_named_is_its_length(tmp_path: Path) -> None:
    limited = copy.deepcopy(make_tokenizer())
    limited.model_max_length = 20
    limited.save_pretrained(tmp_path)
    for tokenizer in (limited, tmp_path, str(tmp_path)):
        batch = next(iter(create_deterministic_dataloader(in_memory(10), "train", np.int64(2), tokenizer, 1, 0)))
        assert batch["input_ids"].shape == (2, 20)


def test_a_part_of_a_split_is_refused_with_the_way_to_take_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"split: found 'train\[:10\]'.*hand over datasets.load_dataset"):
        create_streaming_dataset(hub_like(tmp_path, [10]), "train[:10]", make_tokenizer(), LENGTH, 0, 10)


def test_a_name_where_only_an_object_will_do_is_refused_with_the_function_that_takes_it() -> None:
    with pytest.raises(SpecError, match=r"the name 'corpus'; wanted an object.*create_streaming_dataset"):
        PretrainDataset(make_tokenizer(), "corpus", LENGTH)


def test_token_files_are_a_dataset_by_their_name(tmp_path: Path) -> None:
    tokenised(20).to_parquet(str(tmp_path / "tokens.parquet"))
    rows = list(StreamingDataset(str(tmp_path / "tokens.parquet"), 2, 1))
    assert row_numbers([row["input_ids"] for row in rows]) == list(range(1, 20, 2))


def test_a_stream_has_no_deterministic_order() -> None:
    with pytest.raises(SpecError, match="a stream, whose order is its own"):
        create_deterministic_dataloader(streaming(10), "train", 2, make_tokenizer(), 1, 0, max_length=LENGTH)


def kept_by_torch(loader: BatchLoader, directory: Path) -> Callable[[BatchLoader], None]:
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    checkpoint.save({"data": loader}, checkpoint_id=directory, no_dist=True)
    return lambda resumed: checkpoint.load({"data": resumed}, checkpoint_id=directory, no_dist=True)  # type: ignore[no-any-return]


def kept_by_orbax(loader: BatchLoader, directory: Path) -> Callable[[BatchLoader], None]:
    checkpoint = pytest.importorskip("orbax.checkpoint")
    with checkpoint.CheckpointManager(directory) as manager:
        manager.save(3, args=checkpoint.args.Composite(data=checkpoint.args.JsonSave(loader.state_dict())))
        manager.wait_until_finished()
        kept = manager.restore(3, args=checkpoint.args.Composite(data=checkpoint.args.JsonRestore()))
    return lambda resumed: resumed.load_state_dict(kept["data"])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
@pytest.mark.parametrize("keep", [kept_by_torch, kept_by_orbax])
def test_other_peoples_checkpoints_keep_the_state_for_any_number_of_ranks(keep: Any, tmp_path: Path) -> None:
    whole = global_batches(token_stream, 1, 12)
    loader = create_dataloader(token_stream(), 12, 1, 0)
    taken = [row_numbers(batch["input_ids"]) for batch in islice(loader, 3)]
    restore = keep(loader, tmp_path)
    for world_size in (1, 2, 4):
        parts = [create_dataloader(token_stream(), 12 // world_size, world_size, rank) for rank in range(world_size)]
        for part in parts:
            restore(part)
        steps = zip(*parts, strict=True)
        rest = [[n for batch in step for n in row_numbers(batch["input_ids"])] for step in steps]
        assert taken + rest == whole


def test_texts_are_what_the_tokenizer_reads_back() -> None:
    batch = next(iter(create_dataloader(PretrainDataset(make_tokenizer(), in_memory(4), 40), 4, 1, 0)))
    assert make_tokenizer().batch_decode(batch["input_ids"], skip_special_tokens=True) == texts(4)
