"""What makes a tokenizer.json unfit to train with, whichever engine reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tpuworker.errors import Fault


def without_limits(text: str) -> str:
    """Return the file's text without its own truncation and padding: lengths are the job's to decide."""
    content = json.loads(text)
    content["truncation"] = None
    content["padding"] = None
    return json.dumps(content, ensure_ascii=False)


def judge_file(tokenizer: Any, texts: Iterable[str]) -> list[Fault]:
    """Return every reason why ids of this file are wrong or random.

    Args:
        tokenizer: The ``tokenizers.Tokenizer`` whose ids are trained on.
        texts: Texts of tokenizer.json that declare what it should be.
    """
    faults: dict[str, Fault] = {}
    for text in texts:
        content = json.loads(text)
        for fault in (*_dropout(content), *_moved_tokens(tokenizer, content)):
            faults[fault.path] = fault
    return list(faults.values())


def _dropout(content: dict[str, Any]) -> list[Fault]:
    dropout = content.get("model", {}).get("dropout")
    if not dropout:
        return []
    return [
        Fault(
            path="model.dropout",
            found=str(dropout),
            wanted="null",
            hint="with dropout the same text gives other ids each time, so no run could be resumed or repeated",
        )
    ]


def _moved_tokens(tokenizer: Any, content: dict[str, Any]) -> list[Fault]:
    """Added tokens whose declared id the library ignores: it counts on from the vocabulary's size."""
    faults = []
    for token in content.get("added_tokens") or ():
        declared, given = token["id"], tokenizer.token_to_id(token["content"])
        if declared != given:
            faults.append(
                Fault(
                    path=f"added_tokens[{token['content']!r}].id",
                    found=f"{declared} declared, {given} given by the tokenizers library",
                    wanted="one id; a model trained elsewhere knows the declared one",
                    hint="there is a gap before it: list the token in model.vocab too, with its id",
                )
            )
    return faults
