"""A tokenizer's files from the hub: only the small ones, at one commit, with errors sorted by who can cure them."""

from __future__ import annotations

from pathlib import Path

from tpuworker.errors import Fault, RetryError, SpecError
from tpuworker.spec.data import TokenizerSpec

#: What a tokenizer may consist of. Weights are never fetched, and neither is code.
_PATTERNS = ["*.json", "*.model", "*.tiktoken", "*.txt", "*.jinja", "*/*.jinja"]
_NOT_NEEDED = ["*.safetensors.index.json", "*.bin.index.json", "onnx/*", "*/*.json"]


def download(spec: TokenizerSpec, looked: list[str]) -> tuple[Path, str]:
    """Return the local directory of a tokenizer on the hub, and its commit.

    Args:
        spec: Name and revision.
        looked: Places that were tried before, in words.

    Raises:
        SpecError: No such repository, revision or rights, with every place that was looked at.
        RetryError: The hub did not answer, or asked to come back later.
    """
    from huggingface_hub import constants
    from huggingface_hub import errors as hub_errors

    # The hub's client was built on requests, httpx and httpx2 in turn; this name is the current one's base error.
    transport_error: type[Exception] = getattr(hub_errors, "HTTPError", OSError)

    name = f"{spec.path!r}" + (f" at revision {spec.revision!r}" if spec.revision else "")

    def refuse(what: str, hint: str) -> SpecError:
        places = "; ".join([*looked, what])
        return SpecError(
            [
                Fault(
                    path="spec.data.tokenizer.path",
                    found=f"{name}, looked for as: {places}",
                    wanted="a directory, a tokenizer.json, or the name of a repository on the hub",
                    hint=hint,
                )
            ]
        )

    try:
        path = _snapshot(spec)
    except hub_errors.HFValidationError as error:
        raise refuse("not a name the hub allows", "check the path, it is read inside the worker") from error
    except hub_errors.GatedRepoError as error:
        raise refuse(
            f"gated repository on {constants.ENDPOINT}",
            "accept its terms, and give the pod HF_TOKEN through spec.train.secrets",
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise refuse(
            f"no repository of this name on {constants.ENDPOINT} that this pod may see",
            "check the name; a private one needs HF_TOKEN through spec.train.secrets",
        ) from error
    except hub_errors.RevisionNotFoundError as error:
        raise refuse(f"repository on {constants.ENDPOINT} without this revision", "check the commit") from error
    except hub_errors.LocalEntryNotFoundError as error:
        if constants.HF_HUB_OFFLINE:
            raise refuse(
                f"not in the hub's cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set",
                "put the tokenizer into the image, or unset HF_HUB_OFFLINE",
            ) from error
        raise RetryError(
            f"tokenizer {name}: {'; '.join(looked)}; not in the hub's cache, and {constants.ENDPOINT} could not be "
            f"reached ({_cause(error)}); is it a local path that is missing in the image?"
        ) from error
    except hub_errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status == 429 or status >= 500:
            raise RetryError(f"tokenizer {name}: {constants.ENDPOINT} answered {status}; try again later") from error
        raise refuse(f"{constants.ENDPOINT} answered {status}", "check the name and the token") from error
    except (transport_error, OSError) as error:
        raise RetryError(f"tokenizer {name}: {constants.ENDPOINT} could not be reached ({_cause(error)})") from error
    return Path(path), Path(path).name


def _snapshot(spec: TokenizerSpec) -> str:
    """Fetch without progress bars: the log of a pod is no terminal."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    were_disabled = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        path: str = snapshot_download(
            spec.path, revision=spec.revision, allow_patterns=_PATTERNS, ignore_patterns=_NOT_NEEDED
        )
    finally:
        if not were_disabled:
            enable_progress_bars()
    return path


def _cause(error: BaseException) -> str:
    root = error
    while (inner := root.__cause__ or root.__context__) is not None:
        root = inner
    return f"{type(root).__name__}: {str(root)[:200]}"
