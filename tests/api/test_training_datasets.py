"""PretrainDataset and ConversationDataset: labels that are ids, pads known by position, map-style and streaming."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import datasets
import pytest

torch = pytest.importorskip("torch")

from tests.api.builders import (  # noqa: E402
    CHAT_TEMPLATE,
    conversations,
    generated,
    in_memory,
    make_tokenizer,
    row_numbers,
    streaming,
    texts,
)
from tpuworker.api import ConversationDataset, PretrainDataset, create_dataloader  # noqa: E402
from tpuworker.errors import DataError, InputError, SpecError  # noqa: E402
from tpuworker.tasks.template import FALLBACK_TEMPLATE  # noqa: E402

pytestmark = pytest.mark.torch_xla

LENGTH = 16
ARRAYS = ("input_ids", "attention_mask", "labels")


def ids_of(rows: Any) -> list[list[int]]:
    return [row["input_ids"].tolist() for row in rows]


def test_a_text_row_is_what_the_tokenizer_makes_with_labels_that_are_ids_and_no_label_at_pads() -> None:
    rows = PretrainDataset(make_tokenizer(), in_memory(20), LENGTH)
    wanted = make_tokenizer()(texts(20), padding="max_length", truncation=True, max_length=LENGTH)
    assert len(rows) == 20
    for number in range(20):
        row = rows[number]
        assert tuple(row) == ARRAYS
        assert {(tensor.dtype, tuple(tensor.shape)) for tensor in row.values()} == {(torch.int64, (LENGTH,))}
        ids, mask = wanted["input_ids"][number], wanted["attention_mask"][number]
        assert row["input_ids"].tolist() == ids
        assert row["attention_mask"].tolist() == mask
        assert row["labels"].tolist() == [token if seen else -100 for token, seen in zip(ids, mask, strict=True)]


def test_a_named_switch_leaves_pads_unmasked() -> None:
    row = PretrainDataset(make_tokenizer(), in_memory(1), LENGTH, mask_pads=False)[0]
    assert row["labels"].tolist() == row["input_ids"].tolist()
    assert row["attention_mask"].sum() < LENGTH


@pytest.mark.parametrize("kind", ["pretrain", "conversation"])
def test_a_real_end_token_is_learnt_though_it_is_also_the_pad(kind: str) -> None:
    tokenizer = make_tokenizer(pad="<|end|>", chat_template=CHAT_TEMPLATE)
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    rows: Any = (
        PretrainDataset(tokenizer, in_memory(1), 40, end_token=True)
        if kind == "pretrain"
        else ConversationDataset(tokenizer, conversations(1), 40)
    )
    row = rows[0]
    num_tokens = int(row["attention_mask"].sum())
    assert row["labels"][num_tokens - 1] == end
    assert row["labels"][num_tokens:].tolist() == [-100] * (40 - num_tokens)
    assert row["input_ids"][num_tokens:].tolist() == [end] * (40 - num_tokens)


def test_indices_count_from_both_ends_and_others_are_no_rows() -> None:
    rows = PretrainDataset(make_tokenizer(), in_memory(7), LENGTH)
    assert ids_of([rows[-1], rows[-7]]) == ids_of([rows[6], rows[0]])
    for index in (7, -8):
        with pytest.raises(IndexError, match=f"row {index} of 7"):
            _ = rows[index]


def test_torchs_own_loader_takes_the_rows_also_shuffled() -> None:
    rows = PretrainDataset(make_tokenizer(), in_memory(20), LENGTH)
    loader = torch.utils.data.DataLoader(rows, batch_size=5, shuffle=True, drop_last=True)
    assert sorted(n for batch in loader for n in row_numbers(batch["input_ids"])) == list(range(20))


def test_a_selection_and_a_transform_of_the_dataset_count() -> None:
    chosen = PretrainDataset(make_tokenizer(), in_memory(20).select([5, 3, 11]), LENGTH)
    assert row_numbers([chosen[index]["input_ids"] for index in range(3)]) == [5, 3, 11]
    transformed = in_memory(3).with_transform(lambda batch: {"text": [f"a {text}" for text in batch["text"]]})
    row = PretrainDataset(make_tokenizer(), transformed, LENGTH)[1]
    assert make_tokenizer().decode(row["input_ids"]).startswith("a row 1")


@pytest.mark.parametrize("make_source", [streaming, generated], ids=["shards", "generator"])
def test_over_a_stream_the_rows_are_the_same_in_the_streams_order(make_source: Any) -> None:
    rows = PretrainDataset(make_tokenizer(), make_source(20), LENGTH)
    assert isinstance(rows, PretrainDataset)
    assert isinstance(rows, torch.utils.data.IterableDataset)
    assert not isinstance(PretrainDataset(make_tokenizer(), in_memory(2), LENGTH), torch.utils.data.IterableDataset)
    known = PretrainDataset(make_tokenizer(), in_memory(20), LENGTH)
    for streamed, wanted in zip(rows, (known[index] for index in range(20)), strict=True):
        assert {name: tensor.tolist() for name, tensor in streamed.items()} == {
            name: tensor.tolist() for name, tensor in wanted.items()
        }
    with pytest.raises(TypeError, match="does not tell how many rows"):
        len(rows)
    with pytest.raises(TypeError, match="read in its own order"):
        _ = rows[0]


def test_over_a_stream_rows_resume_exactly() -> None:
    whole = ids_of(PretrainDataset(make_tokenizer(), streaming(30), LENGTH))
    first = PretrainDataset(make_tokenizer(), streaming(30), LENGTH)
    taken = ids_of(islice(first, 11))
    second = PretrainDataset(make_tokenizer(), streaming(30), LENGTH)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert taken + ids_of(second) == whole


def test_columns_are_found_by_their_usual_names_or_by_the_one_that_is_given() -> None:
    for name, options in (("text", {}), ("data", {}), ("words", {"text_column": "words"})):
        source = datasets.Dataset.from_dict({name: ["row 1"]})
        assert row_numbers([PretrainDataset(make_tokenizer(), source, LENGTH, **options)[0]["input_ids"]]) == [1]
    both = datasets.Dataset.from_dict({"data": ["row 1"], "text": ["row 2"]})
    assert row_numbers([PretrainDataset(make_tokenizer(), both, LENGTH)[0]["input_ids"]]) == [2]
    tokenizer = make_tokenizer(chat_template=CHAT_TEMPLATE)
    for name, options in (("messages", {}), ("conversations", {}), ("chat", {"conversation_column": "chat"})):
        assert len(ConversationDataset(tokenizer, conversations(3, name), LENGTH, **options)) == 3
    with pytest.raises(InputError, match="a column 'messages' or 'conversations'; name it in conversation_column"):
        ConversationDataset(tokenizer, in_memory(1), LENGTH)


def test_a_conversation_is_what_apply_chat_template_makes() -> None:
    tokenizer = make_tokenizer(chat_template=CHAT_TEMPLATE)
    source = conversations(4)
    rows = ConversationDataset(tokenizer, source, 48)
    for number in range(4):
        wanted = tokenizer.apply_chat_template(source[number]["messages"], tokenize=True, return_dict=False)
        row = rows[number]
        num_tokens = int(row["attention_mask"].sum())
        assert row["input_ids"][:num_tokens].tolist() == wanted
        assert row["labels"].tolist() == wanted + [-100] * (48 - num_tokens)


def test_the_loss_can_be_on_the_assistant_alone() -> None:
    tokenizer = make_tokenizer(chat_template=CHAT_TEMPLATE)
    row = ConversationDataset(tokenizer, conversations(3), 48, loss_on="assistant")[2]
    assert tokenizer.decode(row["labels"][row["labels"] != -100]) == "row 2 tells a story<|end|>"


@pytest.mark.parametrize("is_stream", [False, True], ids=["in memory", "streaming"])
def test_answers_that_all_lie_behind_the_cut_are_refused_not_trained_on_with_loss_0(is_stream: bool) -> None:
    turns = [{"role": "user", "content": "a story " * 60}, {"role": "assistant", "content": "row 1"}]
    source = datasets.Dataset.from_dict({"messages": [turns] * 8 + conversations(2)["messages"][:]})
    source = source.to_iterable_dataset() if is_stream else source
    tokenizer = make_tokenizer(chat_template=CHAT_TEMPLATE)
    with pytest.raises(
        DataError, match=r"dataset: found 8 of 10 probed rows without a token to learn; wanted at most 5%"
    ):
        ConversationDataset(tokenizer, source, 48, loss_on="assistant")
    rows = ConversationDataset(tokenizer, source, 48, loss_on="assistant", most_unlearnable_fraction=0.8)
    each = rows if is_stream else (rows[number] for number in range(10))
    assert [bool((row["labels"] != -100).any()) for row in each] == [False] * 8 + [True] * 2
    ConversationDataset(tokenizer, source, 48)  # loss on all: there is something in every row


def test_without_a_chat_template_the_stated_fallback_writes_the_turns() -> None:
    tokenizer = make_tokenizer()
    row = ConversationDataset(tokenizer, conversations(3), 60)[2]
    assert tokenizer.decode(row["input_ids"][row["attention_mask"] == 1]) == (
        "User: what is row 2?\n\nAssistant: row 2 tells a story<|end|>"
    )
    assert "Role: content" in str(ConversationDataset.__doc__)
    assert "FALLBACK_TEMPLATE" in str(ConversationDataset.__doc__)
    assert "capitalize" in FALLBACK_TEMPLATE


def test_turns_with_from_and_value_are_turns() -> None:
    tokenizer = make_tokenizer(chat_template=CHAT_TEMPLATE)
    source = datasets.Dataset.from_dict(
        {"conversations": [[{"from": "human", "value": "hello"}, {"from": "gpt", "value": "a story"}]]}
    )
    row = ConversationDataset(tokenizer, source, 48)[0]
    assert tokenizer.decode(row["input_ids"][row["attention_mask"] == 1]) == "<|user|>hello<|assistant|>a story<|end|>"


def test_conversations_stream_as_well_and_load_in_batches() -> None:
    tokenizer = make_tokenizer(chat_template=CHAT_TEMPLATE)
    known = ConversationDataset(tokenizer, conversations(12), 48)
    streamed = ConversationDataset(tokenizer, conversations(12).to_iterable_dataset(num_shards=2), 48)
    assert ids_of(streamed) == ids_of(known[index] for index in range(12))
    for rows in (known, streamed):
        batches = list(create_dataloader(rows, 4, 1, 0))
        assert [tuple(batch) for batch in batches] == [ARRAYS] * 3
        assert [ids for batch in batches for ids in batch["input_ids"].tolist()] == ids_of(
            known[index] for index in range(12)
        )


def test_a_bad_record_is_named_by_its_row_or_has_no_label() -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]
    source = datasets.Dataset.from_dict({"messages": [conversations(1)[0]["messages"], turns]})
    tokenizer = make_tokenizer(chat_template=CHAT_TEMPLATE)
    with pytest.raises(DataError, match="dataset, row 1: found null-content message 1, assistant"):
        _ = ConversationDataset(tokenizer, source, 48)[1]
    row = ConversationDataset(tokenizer, source, 48, on_bad_record="mask")[1]
    assert row["labels"].tolist() == [-100] * 48
    assert "None" not in tokenizer.decode(row["input_ids"])


def test_what_is_no_text_and_no_conversation_is_refused_before_the_first_row() -> None:
    with pytest.raises(DataError, match="found type int64; wanted strings"):
        PretrainDataset(make_tokenizer(), datasets.Dataset.from_dict({"text": [1, 2]}), LENGTH)
    with pytest.raises(DataError, match="wanted lists of messages with role and content"):
        ConversationDataset(make_tokenizer(), datasets.Dataset.from_dict({"messages": ["hello"]}), LENGTH)


def test_a_tokenizer_that_runs_in_python_only_is_refused() -> None:
    class Slow:
        name_or_path = "slow"

    with pytest.raises(SpecError, match="tokenizer: found Slow in Slow slow, which runs in Python only"):
        PretrainDataset(Slow(), in_memory(1), LENGTH)
