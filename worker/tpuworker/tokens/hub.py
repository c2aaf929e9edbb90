"""A tokenizer's files from the hub: only the small ones, at one commit, with errors sorted by who can cure them."""

from __future__ import annotations

from pathlib import Path

from tpuworker.errors import Fault, RetryError, SpecError
from tpuworker.spec.data import TokenizerSpec
from tpuworker.storage import Remedy, RetryPolicy, UnavailableError, redact, remedy, with_retries

#: What a tokenizer may consist of. Weights are never fetched, and neither is code.
_PATTERNS = ["*.json", "*.model", "*.tiktoken", "*.txt", "*.jinja", "*/*.jinja"]
_NOT_NEEDED = ["*.safetensors.index.json", "*.bin.index.json", "onnx/*", "*/*.json"]


def download(spec: TokenizerSpec, looked: list[str], policy: RetryPolicy) -> tuple[Path, str]:
    """Return the local directory of a tokenizer on the hub, and its commit.

    Args:
        spec: Name and revision.
        looked: Places that were tried before, in words.
        policy: How often a request is repeated that the hub refused for now (429, 5xx) or did not answer.

    Raises:
        SpecError: No such repository, revision or rights, with every place that was looked at.
        RetryError: The hub still did not answer, or still asked to come back later.
    """
    from huggingface_hub import constants

    name = f"{spec.path!r}" + (f" at revision {spec.revision!r}" if spec.revision else "")

    def attempt() -> Path | Exception:
        try:
            return Path(_snapshot(spec))
        except Exception as error:  # the client was built on requests, httpx and httpx2 in turn
            if remedy(error) is Remedy.RETRY and not constants.HF_HUB_OFFLINE:
                raise
            return error

    try:
        found = with_retries(attempt, url=constants.ENDPOINT, policy=policy)
    except UnavailableError as error:
        raise RetryError(
            f"tokenizer {name}: {'; '.join(looked)}; not in the hub's cache, and {constants.ENDPOINT} could not be "
            f"reached in {policy.attempts} attempts ({_cause(error)}); is it a local path that the image lacks?"
        ) from error
    if isinstance(found, Path):
        return found, found.name
    what, hint = _why_not(found)
    raise SpecError(
        [
            Fault(
                path="spec.data.tokenizer.path",
                found=f"{name}, looked for as: {'; '.join([*looked, what])}",
                wanted="a directory, a tokenizer.json, or the name of a repository on the hub",
                hint=hint,
            )
        ]
    ) from found


def _why_not(error: Exception) -> tuple[str, str]:
    """Return what the hub's answer means, and what to do."""
    from huggingface_hub import constants
    from huggingface_hub import errors as hub_errors

    if isinstance(error, hub_errors.HFValidationError):
        return "not a name the hub allows", "check the path, it is read inside the worker"
    if isinstance(error, hub_errors.GatedRepoError):
        return (
            f"gated repository on {constants.ENDPOINT}",
            "accept its terms, and give the pod HF_TOKEN through spec.train.secrets",
        )
    if isinstance(error, hub_errors.RepositoryNotFoundError):
        return (
            f"no repository of this name on {constants.ENDPOINT} that this pod may see",
            "check the name; a private one needs HF_TOKEN through spec.train.secrets",
        )
    if isinstance(error, hub_errors.RevisionNotFoundError):
        return f"repository on {constants.ENDPOINT} without this revision", "check the commit"
    if constants.HF_HUB_OFFLINE:
        return (
            f"not in the hub's cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set",
            "put the tokenizer into the image, or unset HF_HUB_OFFLINE",
        )
    return f"refused by {constants.ENDPOINT} ({_cause(error)})", "check the name and the token"


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
    return redact(f"{type(root).__name__}: {str(root).splitlines()[0][:200]}" if str(root) else type(root).__name__)
