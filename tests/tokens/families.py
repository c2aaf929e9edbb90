"""Real tokenizers of the usual families, trained in the session from text that Python itself ships."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

END = "<|endoftext|>"
GPT2_REGEX = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NON_ASCII = (
    "Größe und Maß, naïve façade; Привет, как дела? 東京都は日本の首都です。 안녕하세요 세계. नमस्ते दुनिया. שלום עולם. "
    "مرحبا بالعالم. 👩‍👩‍👧‍👦 🇪🇺 é é Å ﬁ ½ ٣\n"
)


@cache
def corpus() -> tuple[str, ...]:
    """About 1.5 MB of sources and prose of the standard library, and a little of other scripts."""
    directory = Path(sysconfig.get_paths()["stdlib"])
    texts = [NON_ASCII * 5]
    size = 0
    for path in sorted(directory.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        texts.append(text)
        size += len(text)
        if size > 1_500_000:
            break
    return tuple(texts)


def _train(tokenizer: Tokenizer, trainer: trainers.Trainer, num_texts: int = 40) -> Tokenizer:
    tokenizer.train_from_iterator(corpus()[:num_texts], trainer)
    return tokenizer


@cache
def byte_level_bpe() -> str:
    """GPT-2's kind, 2,000 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=[END, "<|user|>", "<|assistant|>", "<|system|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return _train(tokenizer, trainer).to_str()


@cache
def llama3_style() -> str:
    """A split by regex before byte level, BOS in the template, ``ignore_merges``."""
    tokenizer = Tokenizer.from_str(byte_level_bpe())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_REGEX), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B", special_tokens=[("<|begin_of_text|>", begin)]
    )
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = True
    return json.dumps(content)


@cache
def nfc_style() -> str:
    """Qwen's kind: NFC before a split by regex."""
    tokenizer = Tokenizer.from_str(llama3_style())
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer.to_str()


@cache
def llama2_style() -> str:
    """Prepend and replace as normalizers, no pre-tokenizer, bytes for what is unknown, BOS in the template."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    # Trained on words, used without a pre-tokenizer, as the converted sentencepiece files are.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    _train(tokenizer, trainers.BpeTrainer(vocab_size=2000, special_tokens=specials, show_progress=False))
    content = json.loads(tokenizer.to_str())
    content["pre_tokenizer"] = None
    content["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    content["added_tokens"] = content["added_tokens"][:3]
    content["post_processor"] = _begin_template("<s>", 1)
    return json.dumps(content)


@cache
def metaspace_style() -> str:
    """The later form of the same: Metaspace as pre-tokenizer, no normalizer."""
    content = json.loads(llama2_style())
    content["normalizer"] = None
    content["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return json.dumps(content)


@cache
def unigram() -> str:
    """T5's kind: NFKC, Metaspace, end token in the template, a pad token."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=600, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    _train(tokenizer, trainer, num_texts=4)  # the slow trainer
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer.to_str()


@cache
def wordpiece() -> str:
    """BERT's kind: [CLS] text [SEP], a pad token."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=1500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    _train(tokenizer, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer.to_str()


def _begin_template(token: str, token_id: int) -> dict[str, object]:
    template = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A $B", special_tokens=[(token, token_id)]
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.post_processor = template
    return json.loads(tokenizer.to_str())["post_processor"]  # type: ignore[no-any-return]


FAMILIES: dict[str, Callable[[], str]] = {
    "byte-level": byte_level_bpe,
    "llama-3": llama3_style,
    "nfc": nfc_style,
    "llama-2": llama2_style,
    "metaspace": metaspace_style,
    "unigram": unigram,
    "wordpiece": wordpiece,
}


def with_added_token(text: str, content: str, **flags: bool) -> str:
    """The file with one more added token."""
    tokenizer = Tokenizer.from_str(text)
    tokenizer.add_tokens([AddedToken(content, **flags)])
    return tokenizer.to_str()
