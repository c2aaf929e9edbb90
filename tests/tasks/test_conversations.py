"""Conversations: what the model reads, what it learns from, and which records cannot be used."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.tokens.builders import make_data, make_reference, make_tokenizer
from tests.tokens.families import END, FAMILIES, byte_level_bpe
from tpuworker.errors import DataError
from tpuworker.pipeline import make_pipeline, sample_texts
from tpuworker.tasks.conversation import ConversationTask, check_learnable, render_column
from tpuworker.tasks.probe import probe_rows
from tpuworker.tasks.spans import SpanMasker
from tpuworker.tasks.turns import turn_fields
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.resolve import load_tokenizer
from tpuworker.tokens.tokenizer import Tokenizer

#: Writes each turn as <|role|>text<|endoftext|>\n, once with markers and once without.
MARKED = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}"
    "{{ '\\n' }}{% else %}{{ message['content'] + eos_token + '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
UNMARKED = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + eos_token + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + UNMARKED
)
FORGETFUL = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{{ message['content'] if loop.last else message['content'][:1] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@cache
def make_chat_tokenizer(template: str | None = MARKED, json_text: str | None = None) -> Tokenizer:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tokenizer.json"
        path.write_text(json_text or byte_level_bpe(), encoding="utf-8")
        config: dict[str, Any] = {"eos_token": END} if json_text is None else {}
        if template is not None:
            config["chat_template"] = template
        path.with_name("tokenizer_config.json").write_text(json.dumps(config))
        return load_tokenizer(make_data(path, task="conversation"))


def make_task(template: str | None = MARKED, json_text: str | None = None, **fields: Any) -> ConversationTask:
    tokenizer = make_chat_tokenizer(template, json_text)
    data = make_data(task="conversation", **{"max_length": 64, **fields})
    return ConversationTask.create(data, tokenizer, make_reference(json_text))


def turn(role: str | None, content: str | None) -> dict[str, str | None]:
    return {"role": role, "content": content}


def talk(*contents: str) -> list[dict[str, str | None]]:
    return [turn(("user", "assistant")[place % 2], content) for place, content in enumerate(contents)]


def column(*records: Any) -> pa.Array:
    return pa.array(records, pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])))


def learnt(task: ConversationTask, documents: Documents, row: int = 0) -> str:
    """What the trainable tokens of a document say."""
    assert documents.trainable is not None
    begin, end = documents.offsets[row : row + 2]
    ids = documents.ids[begin:end][documents.trainable[begin:end]]
    return task.masker._reference.decode(ids.tolist(), skip_special_tokens=False)  # type: ignore[no-any-return]


@pytest.mark.parametrize("family", ["byte-level", "llama-3", "nfc", "llama-2", "metaspace", "unigram"])
def test_ids_and_mask_are_those_of_apply_chat_template(family: str, tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    json_text = FAMILIES[family]()
    (tmp_path / "tokenizer.json").write_text(json_text, encoding="utf-8")
    eos = "</s>" if family in ("llama-2", "metaspace", "unigram") else END
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), eos_token=eos, pad_token=eos)
    theirs.chat_template = MARKED
    conversations = [
        talk("What is 1+1?", "Two. naïve façade 東京 👩‍👩‍👧‍👦", "And  then?", "\n\nNothing.  "),
        [turn("system", "Be brief."), *talk("é", "é"), turn("user", "no answer")],
    ]
    task = make_task(MARKED, json_text, tokenizer={"eos_token": eos, "pad_token": eos})
    documents = task.encode(column(*conversations))
    assert documents.trainable is not None
    for row, conversation in enumerate(conversations):
        wanted = theirs.apply_chat_template(
            conversation, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        begin, end = documents.offsets[row : row + 2]
        assert documents.ids[begin:end].tolist() == wanted["input_ids"]
        assert documents.trainable[begin:end].astype(int).tolist() == wanted["assistant_masks"]


@pytest.mark.parametrize("template", [MARKED, UNMARKED], ids=["by markers", "by prefixes"])
def test_only_the_assistant_is_learnt_up_to_the_end_of_its_turn(template: str) -> None:
    task = make_task(template)
    documents = task.encode(column(talk("question", "answer", "again", "once more")))
    assert learnt(task, documents) == f"answer{END}once more{END}"


def test_a_template_that_forgets_earlier_turns_cannot_tell_and_says_so() -> None:
    documents = make_task(FORGETFUL).encode(column(talk("a b", "c d", "e f", "g h"), talk("a", "c d")))
    assert [(record.row, record.reason) for record in documents.bad] == [(0, "template-not-by-turns")]


def test_loss_on_all_needs_neither_markers_nor_turns() -> None:
    task = make_task(FORGETFUL, conversation={"loss_on": "all"})
    documents = task.encode(column(talk("a b", "c d", "e f", "g h")))
    assert documents.trainable is None
    assert documents.bad == ()


def test_a_tokenizer_without_a_template_gets_the_stated_fallback() -> None:
    task = make_task(None)
    documents = task.encode(column(talk("hello", "world")))
    assert task.template.is_fallback
    (rendered,), _ = render_column(column(talk("hello", "world")), task.template, task.spec)
    assert rendered.text == f"User: hello\n\nAssistant: world{END}"
    assert learnt(task, documents).strip() == f"world{END}"


def test_every_unusable_conversation_is_counted_under_its_own_reason() -> None:
    task = make_task(NO_SYSTEM)
    documents = task.encode(
        column(
            [turn("user", "a"), turn("user", "b")],
            [turn("system", "a"), *talk("b", "c")],
            [turn("user", "a"), turn("assistant", None)],
            [],
            None,
            [turn(None, "a")],
            [turn("narrator", "a")],
            [*talk("a", "b"), turn("system", "late")],
            talk("a", "b"),
        )
    )
    assert [(record.row, record.reason) for record in documents.bad] == [
        (0, "role-order"),
        (1, "template-refused"),
        (2, "null-content"),
        (3, "empty-conversation"),
        (4, "empty-conversation"),
        (5, "no-role"),
        (6, "unknown-role"),
        (7, "role-order"),
    ]
    assert "System role not supported" in documents.bad[1].detail
    assert documents.num_documents == 9
    assert documents.lengths[:8].tolist() == [0] * 8


def test_from_and_value_are_role_and_content() -> None:
    kind = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))
    theirs = pa.array([[{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]], kind)
    task = make_task()
    assert task.encode(theirs).ids.tolist() == task.encode(column(talk("a", "b"))).ids.tolist()


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (pa.string(), "type string"),
        (pa.list_(pa.string()), "type list"),
        (pa.list_(pa.struct([("who", pa.string()), ("text", pa.string())])), "messages with who, text"),
    ],
    ids=["text", "texts", "other fields"],
)
def test_columns_of_other_types_are_refused_by_name(kind: pa.DataType, found: str) -> None:
    with pytest.raises(DataError, match=found):
        turn_fields(kind)


def test_content_in_parts_is_joined_and_pictures_are_refused() -> None:
    part = pa.struct([("type", pa.string()), ("text", pa.string())])
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.list_(part))]))

    def said(role: str, *parts: tuple[str, str | None]) -> dict[str, Any]:
        return {"role": role, "content": [{"type": name, "text": text} for name, text in parts]}

    records = [
        [said("user", ("text", "a"), ("text", "b")), said("assistant", ("text", "c"))],
        [said("user", ("image", None)), said("assistant", ("text", "c"))],
    ]
    task = make_task()
    documents = task.encode(pa.array(records, kind))
    begin, end = documents.offsets[:2]
    assert documents.ids[begin:end].tolist() == task.encode(column(talk("ab", "c"))).ids.tolist()
    assert [(record.row, record.reason) for record in documents.bad] == [(1, "no-text-content")]


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [("merge", "<|user|>be kind\n\nhello<|endoftext|>\n"), ("keep", "<|system|>be kind<|endoftext|>\n<|user|>hello")],
)
def test_a_system_message_is_kept_or_merged_into_the_first_user_turn(rule: str, wanted: str) -> None:
    task = make_task(conversation={"system_role": rule})
    (rendered,), _ = render_column(column([turn("system", "be kind"), *talk("hello", "yes")]), task.template, task.spec)
    assert rendered.text.startswith(wanted)


def test_a_system_message_can_be_refused() -> None:
    documents = make_task(conversation={"system_role": "refuse"}).encode(column([turn("system", "x"), *talk("a", "b")]))
    assert [record.reason for record in documents.bad] == ["system-role"]


def test_there_is_one_begin_token_when_template_and_post_processor_both_write_it() -> None:
    json_text = FAMILIES["llama-3"]()
    task = make_task("{{ '<|begin_of_text|>' }}" + MARKED, json_text)
    documents = task.encode(column(talk("a", "b")))
    begin = make_tokenizer(json_text).prefix[0]
    assert documents.ids.tolist().count(begin) == 1
    assert documents.prefix == ()


def test_the_true_end_token_is_a_label_although_it_is_the_pad() -> None:
    tokenizer = make_chat_tokenizer()
    data = make_data(task="conversation", max_length=24)
    pipeline = make_pipeline(data, tokenizer, make_reference(), num_rows=1)
    batch = pipeline.batch(column(talk("a", "b")))
    ids, labels = batch["input_ids"][0], batch["labels"][0]
    assert tokenizer.pad_id == tokenizer.eos_id
    assert (labels == tokenizer.eos_id).sum() == 1
    assert (ids == tokenizer.eos_id).sum() > 2
    assert batch["input_ids"].shape == (1, 24)


def test_rows_with_nothing_to_learn_keep_their_place_without_loss_and_are_counted() -> None:
    long_question = "word " * 240
    records = [talk(long_question, "a short answer"), talk("short", "answer"), [turn("user", "alone")]]
    documents = make_task().encode(column(*records))
    assert documents.unlearnable == (0, 2)
    assert documents.bad == ()
    left = make_task(truncation_side="left").encode(column(*records))
    assert left.unlearnable == (2,)
    whole = make_task(layout="pack").encode(column(*records))
    assert whole.unlearnable == (2,)


def test_rows_with_nothing_to_learn_can_be_bad_records() -> None:
    task = make_task(conversation={"nothing_to_learn": "fail"})
    documents = task.encode(column(talk("word " * 240, "an answer"), talk("short", "answer"), [turn("user", "alone")]))
    assert [(record.row, record.reason) for record in documents.bad] == [
        (0, "nothing-to-learn"),
        (2, "nothing-to-learn"),
    ]
    assert "cut off" in documents.bad[0].detail
    assert "says nothing" in documents.bad[1].detail
    assert documents.lengths[[0, 2]].tolist() == [0, 0]
    assert learnt(task, documents, 1) == f"answer{END}"


@pytest.mark.parametrize("rule", ["mask", "fail"])
def test_data_with_too_much_of_nothing_to_learn_is_refused_before_a_step(rule: str) -> None:
    task = make_task(conversation={"nothing_to_learn": rule})
    records = [talk("word " * 240, "an answer")] * 8 + [talk("short", "answer")] * 2
    with pytest.raises(DataError, match="8 of 10 probed rows without a token to learn; wanted at most 5%"):
        check_learnable(task.encode(column(*records)), task.spec, "rows")
    check_learnable(task.encode(column(*records[8:])), task.spec, "rows")


def test_places_by_bytes_and_places_by_the_reference_mark_the_same_tokens() -> None:
    texts = ["ab naïve 東京 x", "  two  spaces\n\n", "👩‍👩‍👧‍👦 family"]
    spans = [[(0, 2), (4, 9)], [(1, 5), (9, 15)], [(2, 3)]]
    encoded = make_reference().encode(texts)
    by_bytes = SpanMasker(byte_level_bpe())
    by_reference = SpanMasker(byte_level_bpe())
    by_reference._bytes_of_token = None
    assert np.array_equal(by_bytes.mask(texts, spans, encoded), by_reference.mask(texts, spans, encoded))


@pytest.mark.parametrize("layout", ["pad", "pack"])
def test_a_probe_shows_rows_as_text_with_the_trained_tokens_marked(layout: str) -> None:
    tokenizer = make_chat_tokenizer()
    data = make_data(task="conversation", max_length=48, layout=layout)
    pipeline = make_pipeline(data, tokenizer, make_reference(), num_rows=2)
    documents = pipeline.encode(column(talk("hello", "world"), talk("bye", "see you")))
    if layout == "pack":
        rows = next(pipeline.packed(documents, pipeline.plan(documents.lengths)))
    else:
        rows = next(pipeline.padded(documents))
    shown = probe_rows(rows.arrays, tokenizer, 1)
    text = shown[0].describe()
    assert f"<|user|>hello{END}" in text
    assert f"[[world{END}]]" in text
    assert text.endswith("pads>")
    assert ("--- next document ---" in text) == (layout == "pack")
    assert shown[0].num_trained == int((rows.arrays["labels"][0] != -100).sum())


def test_samples_for_engines_are_the_texts_that_engines_get() -> None:
    data = make_data(task="conversation", max_length=64)
    texts = sample_texts(data, make_chat_tokenizer(), column(talk("a", "b"), None))
    assert texts == [f"<|user|>a{END}\n<|assistant|>b{END}\n"]
    assert sample_texts(make_data(), make_tokenizer(), pa.array(["a", None])) == ["a", ""]


def test_the_cache_of_a_job_depends_on_all_but_the_layout(tmp_path: Path) -> None:
    def cached(**fields: Any) -> Any:
        data = make_data(task="conversation", cache=str(tmp_path), **{"max_length": 64, **fields})
        cache = make_pipeline(data, make_chat_tokenizer(), make_reference(), num_rows=2).cache()
        assert cache is not None
        return cache

    documents = make_task().encode(column(talk("a", "b")))
    cached().keep("unit", documents)
    assert cached(pad_labels="keep").find("unit") is not None
    assert cached(max_length=32).find("unit") is None  # other rows have nothing to learn
    assert cached(conversation={"loss_on": "all"}).find("unit") is None
    assert make_pipeline(make_data(), make_tokenizer(), make_reference(), num_rows=2).cache() is None
