"""The chat template: a conversation as text, and which characters of it the assistant says."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpuworker.tasks.turns import BadTurns, Message
from tpuworker.tokens.tokenizer import Tokenizer

#: For tokenizers without a template: plain words, since no special tokens can be assumed but the end token.
FALLBACK_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- message['role'] | capitalize + ': ' }}"
    "{%- if message['role'] == 'assistant' %}"
    "{%- generation %}{{- message['content'] + (eos_token or '') }}{%- endgeneration %}"
    "{%- else %}{{- message['content'] }}{%- endif %}"
    "{{- '\\n\\n' if not loop.last or add_generation_prompt }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- 'Assistant: ' }}{%- endif %}"
)
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as text.

    Attributes:
        text: What the model reads.
        spans: Characters (begin, end) that the assistant says, in order, disjoint.
    """

    text: str
    spans: tuple[tuple[int, int], ...]


class ChatTemplate:
    """Renders conversations as ``apply_chat_template`` does.

    What the assistant says is taken from the template's ``{% generation %}`` markers. Without them it is found by
    rendering the conversation up to each turn: the text with the generation prompt must be the beginning of the text
    with the turn, and that of the whole. A template for which it is not (because it drops earlier thoughts, say)
    cannot tell, and the conversation is refused.

    Args:
        tokenizer: Gives the template, the special tokens it may name, and those a turn ends with.
        wants_spans: Whether the spans are needed.
    """

    def __init__(self, tokenizer: Tokenizer, *, wants_spans: bool) -> None:
        # Said once at import: that PyTorch is not installed, which is none of a tokenizer's business.
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        from transformers.utils.chat_template_utils import render_jinja_template

        self.source = tokenizer.chat_template or FALLBACK_TEMPLATE
        self.is_fallback = tokenizer.chat_template is None
        self.has_markers = _GENERATION.search(self.source) is not None
        self._wants_spans = wants_spans
        self._names = tokenizer.special_tokens
        self._ends = tuple(token for token in tokenizer.special_tokens.values() if token)
        self._render_library = render_jinja_template

    def render(self, messages: list[Message]) -> Rendered | BadTurns:
        """Return the conversation as text, or why it cannot be one."""
        try:
            if self.has_markers and self._wants_spans:
                texts, spans = self._call([messages], return_assistant_tokens_mask=True)
                return Rendered(texts[0], tuple((begin, end) for begin, end in spans[0] if end > begin))
            text = self._text(messages)
            return Rendered(text, ()) if not self._wants_spans else self._by_prefixes(messages, text)
        except Exception as error:  # a template raises its own errors and those of whatever it does with a message
            return BadTurns("template-refused", " ".join(str(error).split())[:200])

    def _by_prefixes(self, messages: list[Message], text: str) -> Rendered | BadTurns:
        spans = []
        for place, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self._text(messages[:place], add_generation_prompt=True) if place else ""
            through = text if place == len(messages) - 1 else self._text(messages[: place + 1])
            if not through.startswith(before) or not text.startswith(through):
                return BadTurns("template-not-by-turns", f"message {place}: its text depends on later ones")
            end = self._end_of_turn(through)
            if end > len(before):
                spans.append((len(before), end))
        return Rendered(text, tuple(spans))

    def _end_of_turn(self, through: str) -> int:
        """Leave out the line break that templates put behind the token which ends a turn: nobody generates it."""
        bare = through.rstrip()
        return len(bare) if bare.endswith(self._ends) else len(through)

    def _text(self, messages: list[Message], *, add_generation_prompt: bool = False) -> str:
        texts, _ = self._call([messages], add_generation_prompt=add_generation_prompt)
        return str(texts[0])

    def _call(self, conversations: Sequence[list[Message]], **options: Any) -> tuple[list[str], list[Any]]:
        made: tuple[list[str], list[Any]] = self._render_library(
            conversations=list(conversations), chat_template=self.source, **options, **self._names
        )
        return made
