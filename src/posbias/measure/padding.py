"""Padded batches, as tokenizers make them, turned into windows without padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError

__all__ = ["refuse_padding", "unpadded"]


def unpadded(batch: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the windows of a padded batch without their padding.

    Models never see padding in a measurement: what they do with it depends on the architecture
    and on the side (positions that are counted from the padding, pad queries that attend to the
    future), while a window without it gives the same numbers everywhere.

    Parameters
    ----------
    batch : mapping
        ``input_ids`` and ``attention_mask``, each of shape (D, m): arrays, tensors or lists, as a
        tokenizer of the `transformers` library returns them. Padded on the left or on the right,
        also differently from row to row.

    Returns
    -------
    array of int64, shape (D, n)
        Windows for `posbias.measure`.

    Raises
    ------
    InputError
        If an entry is missing, shapes differ, a row has padding between its tokens, or rows have
        different numbers of tokens: a position would mean something else in each.

    Examples
    --------
    >>> left = {"input_ids": [[0, 5, 6], [7, 8, 0]], "attention_mask": [[0, 1, 1], [1, 1, 0]]}
    >>> unpadded(left)
    array([[5, 6],
           [7, 8]])
    """
    missing = [name for name in ("input_ids", "attention_mask") if name not in batch]
    if missing:
        raise InputError(
            f"the batch has no {missing[0]}; input_ids and attention_mask are required, as a "
            "tokenizer returns them"
        )
    ids, mask = _table(batch["input_ids"], "input_ids"), _table(batch["attention_mask"], "mask")
    if ids.shape != mask.shape:
        raise InputError(
            f"input_ids have shape {ids.shape}, attention_mask {mask.shape}; both must be the same"
        )
    if not np.isin(mask, (0, 1)).all():
        raise InputError("attention_mask holds other values than 0 and 1; 1 marks a token")
    counts = mask.sum(axis=1)
    starts = mask.argmax(axis=1)
    if int(counts.min()) != int(counts.max()):
        row = int(np.flatnonzero(counts != counts[0])[0])
        raise InputError(
            f"row 0 of the batch has {counts[0]} tokens, row {row} has {counts[row]}; windows of "
            "equal length are required. Truncate all rows to one length, or measure each length "
            "by itself"
        )
    n = int(counts[0])
    columns = starts[:, None] + np.arange(n)
    inside = np.take_along_axis(mask, np.minimum(columns, mask.shape[1] - 1), axis=1)
    broken = np.flatnonzero(inside.sum(axis=1) != n)
    if broken.size:
        raise InputError(
            f"row {broken[0]} of the batch has padding between its tokens; padding on the left or "
            "right is required"
        )
    return np.take_along_axis(ids, columns, axis=1)


def refuse_padding(ids: NDArray[np.int64], pad_token_id: int | None) -> None:
    """Refuse windows that begin or end with padding, which the model would read as text.

    Parameters
    ----------
    ids : array of int64, shape (D, n)
        Windows of token ids without a mask.
    pad_token_id : int or None
        The id that stands for padding and nothing else; None if there is no such id.

    Raises
    ------
    InputError
        Naming the first such window.
    """
    if pad_token_id is None:
        return
    at_end = np.flatnonzero((ids[:, 0] == pad_token_id) | (ids[:, -1] == pad_token_id))
    if at_end.size:
        raise InputError(
            f"window {at_end[0]} begins or ends with the padding token {pad_token_id}, which the "
            "model would read as text. Pass the batch with its attention_mask, or windows "
            "without padding"
        )


def _table(values: Any, name: str) -> NDArray[np.int64]:
    try:
        table = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is no table ({error}); pad all rows to one length") from error
    if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iub":
        raise InputError(
            f"{name} has shape {table.shape} and type {table.dtype}; integers of shape "
            "(windows, positions) are required"
        )
    return table.astype(np.int64)
