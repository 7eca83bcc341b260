"""Measure a model on a text: windows, capture, statistics and influence.

`measure` is the front door and the only name here that needs torch, when it is called. Text sources
and windows are in `posbias.measure.text` and `posbias.measure.windows`; the pass over all windows
is in `posbias.measure.runner`, the statistics of one forward pass in
`posbias.measure.accumulators`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from posbias.errors import ModelError
from posbias.measure.options import MeasureOptions

if TYPE_CHECKING:
    from posbias.measure.runner import Progress, Text
    from posbias.measurement import Measurement

__all__ = ["MeasureOptions", "measure"]


def measure(
    model: Any,
    text: Text,
    *,
    tokenizer: Any = None,
    options: MeasureOptions | None = None,
    progress: Progress | None = None,
    command: list[str] | None = None,
    **settings: Any,
) -> Measurement:
    """Measure mixing, attention, content and influence of a causal language model.

    The parameters, errors and cost are those of `posbias.measure.runner.measure`, which is loaded,
    and torch with it, on the first call.

    Raises
    ------
    ModelError
        If torch or transformers is not installed.
    """
    try:
        from posbias.measure import runner
    except ModuleNotFoundError as error:
        if error.name in ("torch", "transformers"):
            raise ModelError(
                f"measuring needs {error.name}, which is not installed; install it with pip "
                "install 'posbias[models]'"
            ) from error
        raise
    return runner.measure(
        model,
        text,
        tokenizer=tokenizer,
        options=options,
        progress=progress,
        command=command,
        **settings,
    )
