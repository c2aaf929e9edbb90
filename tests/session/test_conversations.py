"""Chats as people have them, in whole sessions: nothing to learn, odd roles, two BOS, a pad that is the end token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from tests.session.builders import document_over
from tests.session.test_training_loop import Bench
from tests.tasks.test_conversations import MARKED, NO_SYSTEM, talk, turn
from tests.tokens.families import END, FAMILIES, byte_level_bpe
from tpuworker.describe import describe_plan
from tpuworker.errors import DataError
from tpuworker.session import Session
from tpuworker.spec import load_job
from tpuworker.tokens.resolve import load_tokenizer

pytestmark = pytest.mark.jax

#: Input 4 of the loaders study: eight chats whose answer lies behind the cut, and two short ones.
LATE_ANSWERS = [talk("word " * 240, "an answer of five words")] * 8 + [talk("short", "answer")] * 2


def chats(directory: Path, records: list[Any], *, json_text: str = "", **config: Any) -> dict[str, Any]:
    """Write conversations and a chat tokenizer, and return the data section over them."""
    (directory / "chat").mkdir()
    (directory / "chat/tokenizer.json").write_text(json_text or byte_level_bpe(), encoding="utf-8")
    config = {"eos_token": END, "chat_template": MARKED, **config}
    (directory / "chat/tokenizer_config.json").write_text(json.dumps(config))
    lines = "".join(json.dumps({"messages": record}) + "\n" for record in records)
    (directory / "talks.jsonl").write_text(lines)
    return {
        "task": "conversation",
        "sources": [{"files": f"{directory}/talks.jsonl"}],
        "tokenizer": {"path": f"{directory}/chat", "engine": "reference"},
        "max_length": 64,
        "global_batch_size": 2,
        "shuffle": {"order": "sequential"},
    }


def rows_of(session: Session) -> dict[str, Any]:
    """Return all rows of a run, name to int32 [rows, max_length]."""
    batches = [session.backend.local_rows(batch) for batch in session.batches()]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def test_chats_of_which_most_have_nothing_to_learn_are_refused_before_a_step(bench: Bench, tmp_path: Path) -> None:
    data = chats(tmp_path, LATE_ANSWERS)
    with pytest.raises(DataError, match="8 of 10 probed rows without a token to learn; wanted at most 5%"):
        bench.open(data=data)


def test_rows_are_judged_all_over_a_source_not_only_where_it_begins(bench: Bench, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = chats(tmp_path, [])
    (tmp_path / "sorted").mkdir()
    for number, records in enumerate([LATE_ANSWERS[8:] * 10] * 3 + [LATE_ANSWERS[:8]]):
        pq.write_table(pa.table({"messages": records}), tmp_path / f"sorted/{number}.parquet")
    with pytest.raises(DataError, match="8 of 68 probed rows"):
        bench.open(data=data | {"sources": [{"files": f"{tmp_path}/sorted/*.parquet"}]})


def test_where_the_spec_allows_them_they_keep_their_places_without_loss(bench: Bench, tmp_path: Path) -> None:
    data = chats(tmp_path, LATE_ANSWERS)
    rows = rows_of(bench.open(data=data | {"conversation": {"most_unlearnable_fraction": 0.8}}))
    assert bench.records("progress")[-1]["nothing_to_learn"] == 8
    assert (rows["labels"] != -100).any(axis=1).tolist() == [False] * 8 + [True] * 2
    assert rows["attention_mask"].any(axis=1).all()


def test_under_skip_they_are_left_out_and_counted_before_steps_are(bench: Bench, tmp_path: Path) -> None:
    rules = {"conversation": {"nothing_to_learn": "fail"}, "on_bad_record": {"skip": {"limit": 8}}}
    data = chats(tmp_path, LATE_ANSWERS) | rules
    session = bench.open(data=data)
    assert session.num_steps == 1
    assert (rows_of(session)["labels"] != -100).any(axis=1).all()
    dropped = describe_plan(session.job)["sources"][0]["dropped"]
    assert [text.rpartition(", ")[2] for text in dropped] == [f"row {n + 1}: nothing-to-learn" for n in range(8)]


@pytest.mark.parametrize("layout", ["pad", "pack"])
def test_odd_roles_and_contents_are_counted_each_under_its_reason_and_none_is_no_text(
    bench: Bench, tmp_path: Path, layout: str
) -> None:
    """Input 5 of the loaders study."""
    odd = {
        "role-order": [turn("user", "a"), turn("user", "b")],
        "template-refused": [turn("system", "be kind"), *talk("a", "b")],
        "null-content": [turn("user", "a"), turn("assistant", None)],
        "no-role": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}],
        "empty-conversation": [],
    }
    sound = [talk(f"question {number}", f"answer {number}") for number in range(15)]
    data = chats(tmp_path, [*odd.values(), *sound], chat_template=NO_SYSTEM)
    session = bench.open(data=data | {"on_bad_record": "mask", "layout": layout})
    rows = rows_of(session)
    if layout == "pad":
        assert bench.records("progress")[-1]["bad"] == dict.fromkeys(odd, 1)
        assert (rows["labels"][:5] == -100).all()
    else:
        (note,) = [record["message"] for record in bench.records() if "take no place" in record["message"]]
        assert all(f"1 {reason}" in note for reason in odd)
    from tokenizers import Tokenizer

    said = Tokenizer.from_str(session.tokenizer.json_text).decode_batch(rows["input_ids"], skip_special_tokens=False)
    assert "None" not in "".join(said)
    assert [f"answer {number}{END}" in "".join(said) for number in range(15)] == [True] * 15


def test_a_column_of_from_and_value_is_one_of_roles_and_contents(bench: Bench, tmp_path: Path) -> None:
    records = [[{"from": "human", "value": f"question {n}"}, {"from": "gpt", "value": f"answer {n}"}] for n in range(4)]
    theirs = rows_of(bench.open(data=chats(tmp_path, records)))
    (tmp_path / "usual").mkdir()
    usual = chats(tmp_path / "usual", [talk(f"question {n}", f"answer {n}") for n in range(4)])
    ours = rows_of(bench.open(data=usual))
    assert {name: array.tolist() for name, array in theirs.items()} == {n: a.tolist() for n, a in ours.items()}


def test_one_bos_a_learnt_end_and_rows_of_the_asked_length_whatever_the_tokenizer_says(
    bench: Bench, tmp_path: Path
) -> None:
    """Input 6 of the loaders study: BOS of template and post-processor, pad equal to eos, no usable limit."""
    begin = "<|begin_of_text|>"
    data = chats(
        tmp_path,
        [talk(f"question {number}", f"answer {number}") for number in range(6)],
        json_text=FAMILIES["llama-3"](),
        chat_template="{{ bos_token }}" + MARKED,
        bos_token=begin,
        pad_token=END,
        model_max_length=10**30,
    )
    tokenizer = load_tokenizer(load_job(json.dumps(document_over(tmp_path, data=data))).spec.data)
    assert tokenizer.pad_id == tokenizer.eos_id
    rows = rows_of(bench.open(data=data))
    ids, labels, is_token = rows["input_ids"], rows["labels"], rows["attention_mask"] == 1
    assert ids.shape == (6, 64)
    from tokenizers import Tokenizer

    begin_id = Tokenizer.from_str(tokenizer.json_text).token_to_id(begin)
    assert (ids == begin_id).sum(axis=1).tolist() == [1] * 6
    assert (ids[:, 0] == begin_id).all()
    assert (labels == tokenizer.eos_id).sum(axis=1).tolist() == [1] * 6  # the end of the assistant's turn
    assert (labels[~is_token] == -100).all()
    assert (ids[~is_token] == tokenizer.pad_id).all()
    assert (~is_token).any()
