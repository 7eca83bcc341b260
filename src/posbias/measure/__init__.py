"""Measure a model on a text: windows, capture, statistics and influence.

`measure` is the front door; it needs torch and transformers, which are imported when it is
called. Text sources and windows are in `posbias.measure.text` and `posbias.measure.windows`, the
statistics of a forward pass in `posbias.measure.accumulators`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import ModelError
from posbias.measure.options import MeasureOptions
from posbias.measure.text import TextCollection

if TYPE_CHECKING:
    from posbias.measure.checkpoint import PartialRun
    from posbias.measurement import Measurement

__all__ = ["MeasureOptions", "Progress", "Text", "measure"]

Progress = Callable[[int, int], None]
"""Called with the number of windows done and their total."""

Text = (
    str
    | os.PathLike[str]
    | TextCollection
    | Sequence[str]
    | NDArray[np.integer[Any]]
    | Mapping[str, Any]
)
"""Forms in which text can be given."""


def measure(
    model: Any,
    text: Text,
    *,
    tokenizer: Any = None,
    options: MeasureOptions | None = None,
    progress: Progress | None = None,
    partial: PartialRun | None = None,
    command: list[str] | None = None,
    **settings: Any,
) -> Measurement:
    """Measure mixing, attention, content and influence of a causal language model.

    Parameters
    ----------
    model : str, path, PreTrainedModel, (model, tokenizer) or LoadedModel
        A name or path (see `posbias.models.loading.load_model`), or a loaded model, which is left
        exactly as it came.
    text : str, path, TextCollection, sequence of str, integer array or tensor (D, n), or mapping
        A source for `posbias.measure.text.read_text`, documents, or windows of token ids, which
        are used as they are (`length`, `windows`, `seed` and the tokenizer do not apply then). A
        mapping holds a padded batch, ``input_ids`` and ``attention_mask``, whose padding is taken
        off (`posbias.measure.padding.unpadded`).
    tokenizer : tokenizer, optional
        Of a model that is given without one.
    options : MeasureOptions, optional
        All options at once; alternatively each by its name as a keyword.
    progress : callable, optional
        Called with the windows done and their total after every batch.
    partial : PartialRun, optional
        Where checkpoints go and a run continues, see `posbias.measure.checkpoint`. SIGINT and
        SIGTERM then wait for the end of the batch.
    command : list of str, optional
        Argument list to record in the manifest.
    **settings
        Fields of `MeasureOptions`.

    Returns
    -------
    Measurement

    Raises
    ------
    InputError, ModelError, TextError
        If the input does not fit.
    UnsupportedModelError, InstrumentationError
        If the model cannot be measured faithfully or a check fails.
    InterruptedRunError
        If a signal interrupted a run with checkpoints.

    Notes
    -----
    One forward pass, and one backward pass for the influence, per batch; only the logits of the
    last position are formed. Memory beside the model is ``8 T n^2`` bytes for the kernels, the
    attention of one layer, and what the gradient needs.

    Examples
    --------
    >>> result = measure("embedded:bloom", "embedded", windows=8)   # doctest: +SKIP
    >>> result.mixing()                                             # doctest: +SKIP
    """
    for library in ("torch", "transformers"):
        if importlib.util.find_spec(library) is None:
            raise ModelError(
                f"measuring needs {library}, which is not installed. "
                "Install what is missing: pip install 'posbias[models]'"
            )
    from posbias.measure import runner

    return runner.measure(
        model,
        text,
        tokenizer=tokenizer,
        options=options,
        progress=progress,
        partial=partial,
        command=command,
        **settings,
    )
