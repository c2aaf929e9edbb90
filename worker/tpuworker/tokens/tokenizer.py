"""The tokenizer as one value: the text of its file, its special ids, its chat template, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Tokenizer:
    """Everything that is needed to make ids, with no file or network behind it: host 0 resolves, the others receive.

    Attributes:
        source: Where it was found, in words: ``gpt2 on the hub at commit 607a30d``.
        json_text: The tokenizer.json that gives the ids, without its own truncation and padding.
        prefix: Ids that the template puts before every text (BOS, [CLS]).
        suffix: Ids that the template puts after every text (EOS, [SEP]).
        bos_id: Begin token, if there is one.
        eos_id: End token, if there is one.
        pad_id: Token that fills short rows.
        pad_reason: How the pad token was chosen, as half a sentence.
        vocab_size: Largest id plus one: what an embedding table has to hold.
        model_max_length: Longest input the model's own configuration allows; None if it sets no limit.
        chat_template: Jinja text, if there is one.
        special_tokens: Names a chat template may use (``bos_token``, ``eos_token``, ...) and their texts.
    """

    source: str
    json_text: str
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    bos_id: int | None
    eos_id: int | None
    pad_id: int
    pad_reason: str
    vocab_size: int
    model_max_length: int | None = None
    chat_template: str | None = None
    special_tokens: dict[str, str] = field(default_factory=dict)

    @cached_property
    def file_fingerprint(self) -> str:
        """sha256 of the tokenizer file's content, whatever its spacing; engines are judged by it."""
        return self._read_once[0]

    @cached_property
    def splits_words(self) -> bool:
        """Whether a pre-tokenizer splits texts before merging; where none does, merging is many times slower."""
        return self._read_once[1]

    @cached_property
    def _read_once(self) -> tuple[str, bool]:
        # Both from one parse, whose result is not kept: the file may have 30 MB.
        file = json.loads(self.json_text)
        content = json.dumps(file, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        fingerprint = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        return fingerprint, file.get("pre_tokenizer") is not None

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of all that decides ids: the file, the template's ids, end and pad token. Equal on all hosts."""
        decides = [self.file_fingerprint, self.prefix, self.suffix, self.bos_id, self.eos_id, self.pad_id]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()

    @cached_property
    def chat_fingerprint(self) -> str:
        """sha256 of the chat template and the names it may use; empty if there is no template."""
        if self.chat_template is None:
            return ""
        decides = json.dumps([self.chat_template, self.special_tokens], sort_keys=True)
        return hashlib.sha256(decides.encode("utf-8", "surrogatepass")).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the value as bytes for another host; compressed, since a file may have 30 MB."""
        return zlib.compress(json.dumps(asdict(self)).encode(), level=1)

    @classmethod
    def from_bytes(cls, payload: bytes) -> Tokenizer:
        """Return the value that :meth:`to_bytes` wrote."""
        fields: dict[str, Any] = json.loads(zlib.decompress(payload))
        return cls(**{**fields, "prefix": tuple(fields["prefix"]), "suffix": tuple(fields["suffix"])})
