"""The Hugging Face hub: whether it answers, and what its errors mean."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from posbias.errors import ModelError

__all__ = ["cached_commit", "explain_hub_error", "is_hub_reachable", "one_line"]

_TIMEOUT_S = 5.0
_MAX_REASON = 300


def is_hub_reachable() -> bool:
    """Ask the hub once; its client retries each file for half a minute before it gives up.

    False also in offline mode (``HF_HUB_OFFLINE=1``).
    """
    from huggingface_hub import constants, utils

    hub_utils: Any = utils
    try:
        hub_utils.get_session().head(constants.ENDPOINT, timeout=_TIMEOUT_S)
    except Exception:  # No network, offline mode, a proxy's refusal: of many kinds, one meaning.
        return False
    return True


def cached_commit(name: str, filename: str, revision: str | None) -> str | None:
    """Return the commit of a hub model from which a file lies in the cache, None if none does."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(name, filename, revision=revision)
    if not isinstance(path, str):
        return None
    found = re.search(r"snapshots/([0-9a-f]{40})/", Path(path).as_posix())
    return found[1] if found else None


def explain_hub_error(
    name: str, revision: str | None, error: Exception, *, is_online: bool
) -> ModelError:
    """Return what to tell the user when the configuration of a hub model was not obtained."""
    from huggingface_hub import constants, errors

    causes = (error, error.__cause__, error.__context__)

    def is_caused_by(kind: type[Exception]) -> bool:
        return any(isinstance(cause, kind) for cause in causes)

    tried = f"cannot find model {name}: no such folder or file here"
    page = f"{constants.ENDPOINT}/{name}"
    if not is_online and is_caused_by(errors.LocalEntryNotFoundError):
        return ModelError(
            f"{tried}, not in the cache {constants.HF_HUB_CACHE}, and {constants.ENDPOINT} cannot "
            "be reached. Check the name or the connection, or try embedded:bloom"
        )
    if is_caused_by(errors.GatedRepoError):
        return ModelError(
            f"model {name} is gated: accept its terms at {page} and log in with: hf auth login"
        )
    if is_caused_by(errors.RepositoryNotFoundError):
        return ModelError(
            f"{tried}, and {constants.ENDPOINT} has no such model, or it is private. Check the "
            "name, or log in with: hf auth login"
        )
    if is_caused_by(errors.RevisionNotFoundError):
        return ModelError(
            f"model {name} has no revision {revision!r}; a branch, tag or commit of {page} is "
            "required"
        )
    return ModelError(f"the configuration of {name} cannot be read: {one_line(error)}")


def one_line(error: BaseException) -> str:
    """Return type and message of another library's error, on one line and not too long."""
    text = " ".join(str(error).split()).rstrip(".")
    short = text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 3] + "..."
    return f"{type(error).__name__}: {short}" if short else type(error).__name__
