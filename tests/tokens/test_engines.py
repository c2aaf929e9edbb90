"""Engines are proved equal before they work: what is tried, what is found, and what happens on a difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tokens.builders import make_data, make_reference, make_tokenizer
from tests.tokens.families import FAMILIES, byte_level_bpe, corpus, nfc_style
from tpuworker.errors import SpecError, TokenizerError
from tpuworker.spec.data import TokenizerSpec
from tpuworker.tokens.choose import Trials, judge_engines, make_engine, threads_of_fast
from tpuworker.tokens.engine import Encoded, Engine, Texts
from tpuworker.tokens.engines import load_engine
from tpuworker.tokens.engines.gigatoken import GigatokenEngine
from tpuworker.tokens.proven import ProvenEngine
from tpuworker.tokens.routing import CharacterFinder
from tpuworker.tokens.strings import as_strings
from tpuworker.tokens.trial import Effort, differing, try_everything
from tpuworker.tokens.verdict import Mismatch, TokenizerMismatchError, Verdict, join, merge_runs, reference_verdict

SMALL = Effort(random_texts=200, mark_pairs=300, long_text_bytes=50_000, one_character_of=31)
SAMPLES = [text[:3000] for text in corpus()[:12]]


def make_spec(engine: str = "auto") -> TokenizerSpec:
    return make_data(tokenizer={"engine": engine}).tokenizer


def judge(json_text: str, engine: str = "auto", directory: Path | None = None) -> Verdict:
    return judge_engines(
        make_spec(engine), make_tokenizer(json_text), SAMPLES, Trials(directory=directory, effort=SMALL)
    )


class WrongEngine:
    """The reference, wrong wherever a letter stands."""

    name = "fastokens"
    version = "0"

    def __init__(self, letter: str, reference: Engine) -> None:
        self.letter, self.reference, self.num_calls = letter, reference, 0

    def encode(self, texts: Texts) -> Encoded:
        self.num_calls += 1
        strings = as_strings(texts)
        return self.reference.encode([string.replace(self.letter, f"{self.letter}!") for string in strings])


def make_verdict(divergent: Sequence[tuple[int, int]] = (), engine: str = "fastokens") -> Verdict:
    state = "routed" if divergent else "verified"
    return Verdict(engine, "0", "0.23", state, tuple(divergent), file_fingerprint="f", num_trials=10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("family", "engine"),
    [
        ("byte-level", "fastokens"), ("llama-3", "fastokens"), ("nfc", "fastokens"), ("llama-2", "fastokens"),
        ("metaspace", "gigatoken"), ("unigram", "reference"), ("wordpiece", "reference"),
    ],
)  # fmt: skip
def test_auto_takes_the_first_engine_that_proves_equal(family: str, engine: str) -> None:
    json_text = FAMILIES[family]()
    verdict = judge(json_text)
    assert verdict.engine == engine
    assert (verdict.state == "verified") == (engine != "reference")
    assert len(verdict.reasons) == {"fastokens": 0, "gigatoken": 1, "reference": 2}[engine]
    texts = pa.array([*SAMPLES, "", "naïve 東京 👩‍👩‍👧‍👦"])
    found = make_engine(verdict, make_spec(), make_tokenizer(json_text), num_threads=2).encode(texts)
    assert not len(differing(found, make_reference(json_text).encode(texts)))
    assert found.ids.dtype == np.int32


@pytest.mark.parametrize(
    ("family", "threads"),
    [
        ("byte-level", {1: 1, 2: 1, 8: 7}),
        ("llama-3", {1: 1, 2: 1, 8: 7}),
        ("llama-2", {1: 1, 2: 2, 8: 8}),
    ],
)  # fmt: skip
def test_a_fast_engine_leaves_a_processor_to_reading_only_where_it_is_not_the_bottleneck(
    family: str, threads: dict[int, int]
) -> None:
    tokenizer = make_tokenizer(FAMILIES[family]())
    assert {processors: threads_of_fast(tokenizer, processors) for processors in threads} == threads


@pytest.mark.parametrize("engine", ["fastokens", "gigatoken", "reference"])
@pytest.mark.parametrize("texts", [[], [""], ["", "", "a", ""], ["a"] * 3], ids=str)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), None], ids=str)
def test_every_engine_takes_arrow_arrays_slices_and_lists(
    engine: str, texts: list[str], kind: pa.DataType | None
) -> None:
    tokenizer = make_tokenizer()
    wanted = make_reference().encode(texts)
    given_texts = texts if kind is None else pa.array(["zzz", *texts, "zz"], kind).slice(1, len(texts))
    found = load_engine(engine, tokenizer.json_text, 2).encode(given_texts)  # type: ignore[arg-type]
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.offsets.tolist() == wanted.offsets.tolist()


def test_gigatokens_newer_letters_are_found_and_go_to_the_reference() -> None:
    verdict = judge(byte_level_bpe(), "gigatoken")
    assert verdict.state == "routed"
    assert any(first <= 0x323B0 and last >= 0x33479 for first, last in verdict.divergent)
    texts = pa.array(["plain", "a\U000323b01\U000323b0\U000323b0 \U000323b0's", "more"])
    engine = make_engine(verdict, make_spec("gigatoken"), make_tokenizer())
    assert isinstance(engine, ProvenEngine)
    assert engine.encode(texts).ids.tolist() == make_reference().encode(texts).ids.tolist()
    assert engine.counters.routed == 1


def test_gigatokens_order_of_marks_rejects_it_with_a_small_example() -> None:
    with pytest.raises(TokenizerMismatchError) as caught:
        judge(nfc_style(), "gigatoken")
    message = str(caught.value)
    assert "spec.data.tokenizer.engine" in message
    assert "the reference gives" in message
    assert message.isascii()
    assert len(message) < 500


def test_an_engine_asked_for_by_name_that_cannot_read_the_file_is_a_fault_of_the_spec() -> None:
    with pytest.raises(SpecError, match=r"spec\.data\.tokenizer\.engine: found fastokens: .*Metaspace"):
        judge(FAMILIES["metaspace"](), "fastokens")


def test_the_reference_needs_no_proof() -> None:
    assert judge(byte_level_bpe(), "reference") == reference_verdict(make_tokenizer())


def test_a_finding_is_remembered_and_the_users_texts_are_tried_all_the_same(tmp_path: Path) -> None:
    first = judge(byte_level_bpe(), directory=tmp_path)
    second = judge(byte_level_bpe(), directory=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert second.num_trials == len(SAMPLES) < first.num_trials
    assert (second.engine, second.divergent) == (first.engine, first.divergent)


def test_half_a_remembered_finding_is_no_finding(tmp_path: Path) -> None:
    judge(byte_level_bpe(), directory=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text()[:5])
    assert judge(byte_level_bpe(), directory=tmp_path).num_trials > len(SAMPLES)
    json.loads(file.read_text())


def test_a_difference_in_one_letter_is_found_and_boiled_down_to_it() -> None:
    engine = WrongEngine("ß", make_reference())
    finding = try_everything(
        engine, make_reference(), byte_level_bpe(), SAMPLES, seed=0, effort=replace(SMALL, one_character_of=223)
    )
    assert (0xDF, 0xDF) in finding.divergent
    assert finding.mismatch is None


def test_a_difference_in_letters_together_rejects() -> None:
    engine = WrongEngine("self", make_reference())
    finding = try_everything(engine, make_reference(), byte_level_bpe(), SAMPLES, seed=0, effort=SMALL)
    assert finding.mismatch is not None
    assert finding.mismatch.text == "self"


def test_routing_finds_exactly_the_texts_with_such_characters() -> None:
    finder = CharacterFinder([(0xDF, 0xDF), (0x3041, 0x3050), (0x1F600, 0x1F64F)])
    texts = pa.array(["x", "", "ß", "à", "aあ", "ん", "😀!", "", "🚀", "end ß"])
    for kind in (pa.string(), pa.large_string()):
        assert finder.texts_with(texts.cast(kind)).tolist() == [2, 4, 6, 9]
        assert finder.texts_with(texts.cast(kind).slice(3, 4)).tolist() == [1, 3]


@given(st.lists(st.text(max_size=8), max_size=8), st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 300))))
@example(["\x81"], [(0, 128)])
def test_routing_agrees_with_looking_at_every_character(texts: list[str], starts: list[tuple[int, int]]) -> None:
    runs = merge_runs([(first, min(first + size, 0x10FFFF)) for first, size in starts if not 0xD700 <= first <= 0xDFFF])
    array = pa.array(texts, pa.string())
    wanted = [
        place
        for place, text in enumerate(texts)
        if any(first <= ord(character) <= last for character in text for first, last in runs)
    ]
    assert (CharacterFinder(runs).texts_with(array).tolist() if runs else []) == wanted


def make_proven(letter: str, **options: object) -> tuple[ProvenEngine, WrongEngine]:
    wrong = WrongEngine(letter, make_reference())
    return ProvenEngine(wrong, make_reference(), make_verdict(), **options), wrong  # type: ignore[arg-type]


def many_texts(ending: str = "") -> pa.Array:
    return pa.array([text[start : start + 90] + ending for text in corpus() for start in range(0, len(text), 250)])


def test_a_difference_while_running_hands_over_to_the_reference_before_the_batch_is_given_out() -> None:
    found: list[Mismatch] = []
    engine, wrong = make_proven("q", on_mismatch=found.append)
    texts = many_texts(" q")
    wanted = make_reference().encode(texts)
    assert engine.encode(texts).ids.tolist() == wanted.ids.tolist()
    assert found[0].text == "q"
    assert engine.name == "reference"
    assert engine.counters.mismatched > 0
    calls = wrong.num_calls
    assert engine.encode(texts).ids.tolist() == wanted.ids.tolist()
    assert wrong.num_calls == calls


def test_a_difference_while_running_ends_a_job_that_asked_for_the_engine() -> None:
    engine, _ = make_proven("q", strict=True)
    with pytest.raises(TokenizerMismatchError, match=r"'q' gives .* the reference gives"):
        engine.encode(many_texts(" q"))


def test_about_one_text_in_a_thousand_is_checked_and_always_the_same_ones() -> None:
    texts = many_texts()
    counts = []
    for pieces in (1, 7):
        engine, _ = make_proven("\x07")
        for piece in range(pieces):
            begin, end = (len(texts) * place // pieces for place in (piece, piece + 1))
            engine.encode(texts.slice(begin, end - begin))
        counts.append(engine.counters.checked)
    assert counts[0] == counts[1]
    assert 0.2 < counts[0] / (len(texts) / 1000) < 5


def test_hosts_use_one_verdict_and_the_weakest_wins() -> None:
    mine = make_verdict([(5, 9)])
    other = make_verdict([(8, 12)])
    assert join([mine, other]).divergent == ((5, 12),)
    assert join([make_verdict(), other]).state == "routed"
    weak = replace(reference_verdict(make_tokenizer()), file_fingerprint="f", reference_version="0.23")
    joined = join([mine, weak, mine])
    assert (joined.engine, joined.state) == ("reference", "reference")
    assert join([make_verdict(), replace(make_verdict(), engine="gigatoken")]).engine == "reference"


def test_hosts_with_other_tokenizers_are_refused_by_number() -> None:
    with pytest.raises(TokenizerError, match="on host 0, other on host 2"):
        join([make_verdict(), make_verdict(), replace(make_verdict(), file_fingerprint="other")])


@pytest.mark.parametrize("verdict", [make_verdict(), make_verdict([(1, 2), (7, 9)])], ids=["verified", "routed"])
def test_a_verdict_travels_as_json(verdict: Verdict) -> None:
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert verdict.fingerprint == "fastokens 0 equal to reference 0.23"


@pytest.mark.parametrize("text", ["{}", '{"divergent": [], "reasons": [], "x": 1}', "[", "7"])
def test_what_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Verdict.from_json(text)


def test_gigatoken_is_made_anew_before_its_cache_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuworker.tokens.engines.gigatoken.RECYCLE_AFTER_BYTES", 1000)
    engine = GigatokenEngine(make_tokenizer().json_text, 1)
    before = engine._tokenizer
    texts = pa.array(["word " * 300])
    first = engine.encode(texts)
    assert engine._tokenizer is before
    assert engine.encode(texts).ids.tolist() == first.ids.tolist()
    assert engine._tokenizer is not before


@pytest.mark.release
@pytest.mark.parametrize("engine", ["fastokens", "gigatoken"])
def test_memory_stays_bounded_on_text_without_repetition(engine: str) -> None:
    tokenizer = make_tokenizer()
    made = load_engine(engine, tokenizer.json_text, 2)  # type: ignore[arg-type]
    generator = np.random.default_rng(0)
    peaks = []
    for _ in range(3):
        for _ in range(64):
            letters = generator.integers(97, 123, (64, 62_500), np.uint8)
            letters[:, ::9] = 32
            made.encode(pa.array([row.tobytes().decode() for row in letters]))
        peaks.append(_resident_bytes())
    assert peaks[2] - peaks[1] < 300e6


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.release
@pytest.mark.parametrize("family", ["byte-level", "llama-3", "nfc", "llama-2", "metaspace"])
def test_the_pinned_engines_differ_in_nothing_new(family: str) -> None:
    json_text = FAMILIES[family]()
    verdict = judge_engines(make_spec(), make_tokenizer(json_text), list(corpus()), Trials())
    assert verdict.state == "verified"
