"""From the spec's words to a tokenizer: where it was looked for, which tokens it has, and what is wrong with it."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuworker.errors import Fault, SpecError, TokenizerError
from tpuworker.spec.data import DataSpec, TokenizerSpec
from tpuworker.storage import RetryPolicy
from tpuworker.tokens import hub
from tpuworker.tokens.file import judge_file, without_limits
from tpuworker.tokens.special import SpecialTokens, find_special_tokens, find_template
from tpuworker.tokens.tokenizer import Tokenizer

#: From here on a "model's longest input" is a way of saying that there is none; libraries write 10^20 or 10^30.
_NO_LIMIT = 10**9
_FILE_NAME = "tokenizer.json"
_PATH = "spec.data.tokenizer.path"


@dataclass(frozen=True)
class _Found:
    """What lies at the place, before it is judged."""

    source: str
    tokenizer: Any
    """``tokenizers.Tokenizer``."""
    file_texts: tuple[str, ...] = ()
    """Raw text of tokenizer.json, if there is such a file: what it declares is held against what comes out."""
    named: dict[str, str] = field(default_factory=dict)
    """``bos_token`` and the like, as far as the configuration names them."""
    model_max_length: int | None = None
    chat_template: str | None = None


def load_tokenizer(data: DataSpec, policy: RetryPolicy | None = None) -> Tokenizer:
    """Find the tokenizer of a job, judge it, and return it as a value.

    ``spec.data.tokenizer.path`` may be a tokenizer.json, which is taken exactly as it stands (the names of its special
    tokens come from the tokenizer_config.json beside it, if there is one); a directory, or the name of a repository on
    the hub, which are opened as ``transformers.AutoTokenizer`` opens them, because that is what the model's users run.

    Args:
        data: The job's data section; task, length and columns have a say in what the tokenizer must have.
        policy: How often the hub is asked again. Default: as everywhere, seven times over about a minute.

    Raises:
        SpecError: It is not there (with every place that was looked at), has no fast form, no token to pad or to end
            with, or a limit below ``max_length``.
        TokenizerError: Its file would make ids that nobody should train on.
        RetryError: The hub could not be reached, or asked to come back later.
    """
    return _judged(data, _find(data.tokenizer, policy or RetryPolicy()))


def find_limit(spec: TokenizerSpec, policy: RetryPolicy | None = None) -> int | None:
    """Return the longest input that a tokenizer's own configuration allows, or None if it sets no limit.

    Raises:
        SpecError: It is not there, or has no fast form.
        RetryError: The hub could not be reached, or asked to come back later.
    """
    return _find(spec, policy or RetryPolicy()).model_max_length


def tokenizer_of(data: DataSpec, opened: Any) -> Tokenizer:
    """Judge a tokenizer that a program holds already, as :func:`load_tokenizer` judges one it has found.

    Args:
        data: The data section it has to fit.
        opened: ``transformers.PreTrainedTokenizerFast`` or any other tokenizer of that library with a fast form.

    Raises:
        SpecError: It has no fast form, no token to pad or to end with, or a limit below ``max_length``.
        TokenizerError: It would make ids that nobody should train on.
    """
    name = getattr(opened, "name_or_path", "")
    return _judged(data, _from_opened(opened, f"{type(opened).__name__} {name}".rstrip()))


def _judged(data: DataSpec, found: _Found) -> Tokenizer:
    from tokenizers import Tokenizer as HFTokenizer

    text = without_limits(found.tokenizer.to_str())
    special = find_special_tokens(found.tokenizer, found.file_texts, found.named, data.tokenizer)
    template = find_template(HFTokenizer.from_str(text))
    faults = judge_file(found.tokenizer, (*found.file_texts, text))
    if template is None:
        faults.append(
            Fault(
                path=_PATH,
                found="a post-processor that puts tokens elsewhere than before and after a text",
                wanted="a template of the form BEGIN text END",
                hint="save the tokenizer with another post-processor",
            )
        )
    if faults:
        raise TokenizerError(faults, where=found.source)
    assert template is not None
    _judge_fit(data, found, special, template)
    assert special.pad_id is not None
    return Tokenizer(
        source=found.source,
        json_text=text,
        prefix=template.prefix,
        suffix=template.suffix,
        bos_id=special.bos_id,
        eos_id=special.eos_id,
        pad_id=special.pad_id,
        pad_reason=special.pad_reason,
        vocab_size=max(found.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1,
        model_max_length=found.model_max_length,
        chat_template=_chat_template(data.tokenizer, found),
        special_tokens=special.named,
    )


def _judge_fit(data: DataSpec, found: _Found, special: SpecialTokens, template: Any) -> None:
    """Raise SpecError with all reasons why the tokenizer does not fit the rest of the document."""
    faults = list(special.faults)
    limit = found.model_max_length
    if limit is not None and data.max_length > limit:
        faults.append(
            Fault(
                path="spec.data.max_length",
                found=str(data.max_length),
                wanted=f"at most {limit}, the model_max_length of {found.source}",
                hint=f"write {limit}, or raise model_max_length in tokenizer_config.json if the model can more",
            )
        )
    num_template = len(template.prefix) + len(template.suffix)
    if data.max_length <= num_template:
        faults.append(
            Fault(
                path="spec.data.max_length",
                found=str(data.max_length),
                wanted=f"at least {num_template + 1}: the template puts {num_template} tokens around every text",
                hint="no row would have room for a token of its text",
            )
        )
    if data.task == "pretrain" and special.eos_id is None and not template.suffix:
        faults.append(
            Fault(
                path="spec.data.tokenizer.eos_token",
                found="no end token in the tokenizer",
                wanted="a token that ends every document, since task is pretrain",
                hint=f"name one of its tokens{special.suggestion}, or take task: text",
            )
        )
    if faults:
        raise SpecError(faults)


def _find(spec: TokenizerSpec, policy: RetryPolicy) -> _Found:
    path = Path(spec.path).expanduser()
    if path.is_file():
        return _from_file(path)
    if path.is_dir():
        return _from_directory(path, source=f"directory {path}")
    looked = [f"no file or directory {path if path.is_absolute() else path.absolute()}"]
    directory, commit = hub.download(spec, looked, policy)
    return _from_directory(directory, source=f"{spec.path} on the hub at commit {commit[:12]}")


def _from_file(path: Path) -> _Found:
    from tokenizers import Tokenizer as HFTokenizer

    try:
        text = path.read_text(encoding="utf-8")
        tokenizer = HFTokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception with the parser's message
        raise SpecError(
            [
                Fault(
                    path=_PATH,
                    found=f"{path}, which the tokenizers library cannot read: {str(error).splitlines()[0][:300]}",
                    wanted="a tokenizer.json",
                    hint="for a model directory or a sentencepiece file, give the directory",
                )
            ]
        ) from error
    config = _read_json(path.with_name("tokenizer_config.json"))
    template = path.with_name("chat_template.jinja")
    chat = template.read_text(encoding="utf-8") if template.is_file() else config.get("chat_template")
    return _Found(
        source=f"file {path}",
        tokenizer=tokenizer,
        file_texts=(text,),
        named=_names(config),
        model_max_length=_limit(config.get("model_max_length")),
        chat_template=chat if isinstance(chat, str) else None,
    )


def _from_directory(path: Path, source: str) -> _Found:
    file = path / _FILE_NAME
    if not (path / "tokenizer_config.json").exists() and not (path / "config.json").exists() and file.is_file():
        # Nothing but the file: transformers would add nothing, and takes seconds to import.
        return _from_file(file)
    # Else it says at import that PyTorch is missing, which is none of a tokenizer's business.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoTokenizer
    from transformers.utils import logging as transformers_logging

    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            auto = AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and bare Exception here
        listing = ", ".join(sorted(entry.name for entry in path.iterdir())[:12]) or "nothing"
        raise SpecError(
            [
                Fault(
                    path=_PATH,
                    found=f"{source} with {listing}: {str(error).strip().splitlines()[0][:300]}",
                    wanted="a directory that AutoTokenizer.from_pretrained opens without code of its own",
                    hint="save the tokenizer there with save_pretrained",
                )
            ]
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
    return _from_opened(auto, source, (file.read_text(encoding="utf-8"),) if file.is_file() else ())


def _from_opened(opened: Any, source: str, file_texts: tuple[str, ...] | None = None) -> _Found:
    backend = getattr(opened, "backend_tokenizer", None)
    if backend is None:
        raise SpecError(
            [
                Fault(
                    path=_PATH,
                    found=f"{type(opened).__name__} in {source}, which runs in Python only",
                    wanted="a tokenizer with a fast form (tokenizer.json)",
                    hint="convert it with transformers.convert_slow_tokenizer and save the result",
                )
            ]
        )
    chat = opened.chat_template
    return _Found(
        source=source,
        tokenizer=backend,
        file_texts=(backend.to_str(),) if file_texts is None else file_texts,
        named={name: str(token) for name, token in opened.special_tokens_map.items() if isinstance(token, str)},
        model_max_length=_limit(opened.model_max_length),
        chat_template=chat.get("default") if isinstance(chat, dict) else chat,
    )


def _chat_template(spec: TokenizerSpec, found: _Found) -> str | None:
    if spec.chat_template is None:
        return found.chat_template
    path = Path(spec.chat_template).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            [
                Fault(
                    path="spec.data.tokenizer.chat_template",
                    found=f"{path}: {error.strerror if isinstance(error, OSError) else error}",
                    wanted="a readable jinja file",
                    hint="the path is read inside the worker; put the file into its image or a volume",
                )
            ]
        ) from error


def _limit(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and 0 < value < _NO_LIMIT else None


def _names(config: dict[str, Any]) -> dict[str, str]:
    """Special tokens that a tokenizer_config.json names; values are texts, or objects with the text as content."""
    named = {}
    for key, value in config.items():
        content = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(content, str):
            named[key] = content
    return named


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SpecError([Fault(path=_PATH, found=f"{path}: {error}", wanted="a readable JSON file")]) from error
    return content if isinstance(content, dict) else {}
