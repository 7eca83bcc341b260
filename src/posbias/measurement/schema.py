"""The schema of a stored measurement: every array and every manifest key, in one place.

A measurement is a manifest (JSON) and named arrays. Shapes use the letters D windows of text,
T layers (index 0 is the bottom layer), H query heads, n positions. All other code, the
documentation and the tests read names, shapes, units and ranges from the tables of this module.

A measurement holds its kernels in full (``kernel.attention.sum``) or summarised by block and lag
(``summary.near.sum`` and ``summary.far.sum``, see `posbias.kernels.SummaryKernel`), with B blocks
of positions and L nearest lags.

Logits are *as the model applies them*: scaled, soft-capped, with the position bias (ALiBi)
subtracted again, over visible pairs only (causal, and inside the sliding window of the layer).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from posbias.measurement._array_spec import ArraySpec, Dimensions
from posbias.measurement.estimator_arrays import ESTIMATOR_ARRAYS

__all__ = [
    "ARRAYS",
    "ESTIMATORS",
    "FORMAT",
    "MANIFEST",
    "POSITION_SCHEMES",
    "ROW_TOLERANCE",
    "VERSION",
    "ArraySpec",
    "Dimensions",
    "KeySpec",
    "array_spec",
    "in_order",
    "influence_array",
]

FORMAT = "posbias.measurement"
"""What a manifest says it is."""

VERSION = 1
"""Version of the format that is written and read."""


ESTIMATORS = ("norm", "frobenius")
"""Estimators of the mixing coefficient, the default first."""

POSITION_SCHEMES = ("none", "alibi", "rotary", "learned", "sinusoidal")
"""Values of ``model.position_scheme.type``."""

ROW_TOLERANCE = 5e-3
"""How far a row of ``kernel.attention.sum`` divided by D may be from sum 1 (half precision)."""

_DTH = ("D", "T", "H")

ARRAYS: Mapping[str, ArraySpec] = {
    "mixing.norm.windows": ArraySpec(
        ("D", "T", "n"),
        "share",
        "|a| / (|x| + |a|) of one token: x enters the attention branch, a is its update as it is "
        "added to the stream",
        low=0.0,
        high=1.0,
    ),
    "mixing.frobenius.windows": ArraySpec(
        ("D", "T"),
        "share",
        "|A|_F / (|X|_F + |A|_F) over the tokens of one window",
        low=0.0,
        high=1.0,
    ),
    "kernel.attention.sum": ArraySpec(
        ("T", "n", "n"),
        "probability, summed over windows",
        "sum over windows of the attention probabilities [query, key] averaged over heads; zero "
        "above the diagonal; rows sum to D within ROW_TOLERANCE * D. Where the softmax has an "
        "entry outside the sequence, rows are divided by the share that is left to the keys and "
        "attention.null.windows records the rest",
        low=0.0,
        merge="sum",
    ),
    "summary.near.sum": ArraySpec(
        ("T", "B", "L"),
        "probability, summed over queries and windows",
        "attention, mean over heads, of the queries of a block to each of the nearest lags, the "
        "own key first; with summary.far.sum in place of kernel.attention.sum",
        low=0.0,
        merge="sum",
        required=False,
    ),
    "summary.far.sum": ArraySpec(
        ("T", "B", "B"),
        "probability, summed over pairs and windows",
        "attention, mean over heads, of the queries of a block to the keys of a block that are "
        "further away than the nearest lags",
        low=0.0,
        merge="sum",
        required=False,
    ),
    "content.diagonal.windows": ArraySpec(
        _DTH, "logit", "mean over queries of the logit of a query with its own key"
    ),
    "content.lower.windows": ArraySpec(
        _DTH, "logit", "mean over visible pairs of the logit of a query with an earlier key"
    ),
    "next.probability.windows": ArraySpec(
        ("D",),
        "probability",
        "probability of the most likely next token at the last position",
        low=0.0,
        high=1.0,
    ),
    "position.slopes": ArraySpec(
        ("T", "H"),
        "logit per position",
        "ALiBi slope that the model effectively applies (logit -slope * lag); present if and only "
        "if model.position_scheme.type is alibi",
        low=0.0,
        merge="same",
        required=False,
    ),
    "content.diagonal.std.windows": ArraySpec(
        _DTH, "logit", "standard deviation of the logits on the diagonal", low=0.0, required=False
    ),
    "content.lower.std.windows": ArraySpec(
        _DTH,
        "logit",
        "standard deviation of the logits below the diagonal",
        low=0.0,
        required=False,
    ),
    "content.explained.windows": ArraySpec(
        _DTH,
        "share",
        "share of the variance of the logits that a constant plus a diagonal term explains",
        low=0.0,
        high=1.0,
        required=False,
    ),
    "content.first.windows": ArraySpec(
        _DTH,
        "logit",
        "mean over queries 1..n-1 that see it of the logit with the first key",
        required=False,
    ),
    "attention.diagonal.windows": ArraySpec(
        _DTH,
        "probability",
        "mean over queries of the attention to the own key",
        low=0.0,
        high=1.0,
        required=False,
    ),
    "attention.first.windows": ArraySpec(
        _DTH,
        "probability",
        "mean over queries 1..n-1 of the attention to the first key",
        low=0.0,
        high=1.0,
        required=False,
    ),
    "attention.null.windows": ArraySpec(
        _DTH,
        "probability",
        "mean over queries of the probability of a softmax entry outside the sequence (a learned "
        "sink as in gpt-oss); absent for models without one",
        low=0.0,
        high=1.0,
        required=False,
    ),
    "integration.gap.windows": ArraySpec(
        ("D",),
        "probability",
        "sum over positions of the signed integrated gradients, less the change of the "
        "probability that they explain: the error of the quadrature; present with influence "
        "method integrated-gradients",
        required=False,
    ),
    "logits.lag.sum": ArraySpec(
        ("T", "H", "n"),
        "logit, summed over pairs and windows",
        "sum of the logits of visible pairs by lag query - key; zero where the count is zero",
        merge="sum",
        required=False,
    ),
    "logits.lag.count": ArraySpec(
        ("T", "n"),
        "pairs",
        "number of visible pairs by lag, over all windows, per head",
        low=0,
        merge="sum",
        required=False,
        dtype="int64",
    ),
    **ESTIMATOR_ARRAYS,
}
"""Arrays by name. Further arrays are named ``influence.<method>.windows``, see `array_spec`."""

_INFLUENCE = ArraySpec(
    ("D", "n"),
    "arbitrary, one scale per method",
    "raw influence of each input position on the most likely next token of one window (method "
    "gradient: L2 norm of the gradient of its probability in the input embedding)",
    low=0.0,
    required=False,
)

_PREFIX, _SUFFIX = "influence.", ".windows"


def influence_array(method: str) -> str:
    """Return the array name of an influence method, e.g. ``influence.gradient.windows``."""
    return f"{_PREFIX}{method}{_SUFFIX}"


def array_spec(name: str) -> ArraySpec | None:
    """Return the spec of an array name, None if the schema has no such array.

    ``influence.<method>.windows`` (D, n) exists for every method name of lower-case letters,
    digits and hyphens; the one that ``influence_method`` of the manifest names is required.
    """
    if name in ARRAYS:
        return ARRAYS[name]
    method = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    is_method = method.replace("-", "").isalnum() and method == method.lower() and method.isascii()
    return _INFLUENCE if is_method and name == influence_array(method) else None


def in_order(names: Iterable[str]) -> list[str]:
    """Return array names in the order of `ARRAYS`, then the influence methods by name."""
    present = set(names)
    return [name for name in ARRAYS if name in present] + sorted(present - set(ARRAYS))


@dataclass(frozen=True)
class KeySpec:
    """One key of the manifest.

    Attributes
    ----------
    kind : str
        ``"text"``, ``"count"`` (integer >= 1), ``"integer"`` (>= 0), ``"flag"``, ``"number"``,
        ``"object"`` (free JSON object), ``"texts"``, or a kind that the description explains.
    description : str
        What the value is.
    nullable : bool
        Whether null is allowed.
    required : bool
        Whether the key must be there.
    setting : bool
        Whether two measurements must agree on it to be merged.
    """

    kind: str
    description: str
    nullable: bool = False
    required: bool = True
    setting: bool = True


MANIFEST: Mapping[str, KeySpec] = {
    "format": KeySpec("text", f"always {FORMAT!r}"),
    "version": KeySpec("count", f"version of this schema, {VERSION}"),
    "posbias_version": KeySpec("text", "version of posbias that measured"),
    "created": KeySpec("time", "time of the measurement, ISO 8601 in UTC", setting=False),
    "model.id": KeySpec("text", "Hugging Face id, folder or file of the model"),
    "model.architecture": KeySpec("text", "model type, e.g. bloom"),
    "model.revision": KeySpec("text", "commit or content hash of the weights", nullable=True),
    "model.layers": KeySpec("count", "T"),
    "model.heads": KeySpec("count", "H, query heads per layer"),
    "model.kv_heads": KeySpec("count", "key-value heads per layer"),
    "model.position_scheme": KeySpec(
        "scheme", f"object with type, one of {', '.join(POSITION_SCHEMES)}, and its parameters"
    ),
    "model.layer_windows": KeySpec(
        "layer windows", "per layer the sliding window (keys seen, own included) or null"
    ),
    "model.parameters": KeySpec("count", "number of parameters"),
    "model.dtype": KeySpec("text", "type of the weights and activations, e.g. float32"),
    "model.attention_implementation": KeySpec("text", "eager, sdpa, ..."),
    "tokenizer.id": KeySpec("text", "id or folder of the tokenizer"),
    "tokenizer.adds_bos": KeySpec("flag", "whether the tokenizer puts a start token first"),
    "text.source": KeySpec("text", "file, folder or data set", setting=False),
    "text.sha256": KeySpec("sha256", "SHA-256 of the text as read, 64 hexadecimal digits"),
    "text.documents": KeySpec("count", "number of documents"),
    "text.tokens": KeySpec("count", "number of tokens of all documents"),
    "windows.length": KeySpec("count", "n, tokens per window, at least 2, start token included"),
    "windows.count": KeySpec("count", "D", setting=False),
    "windows.seed": KeySpec(
        "integer",
        "seed of the draw; null when runs of several seeds were merged",
        nullable=True,
        setting=False,
    ),
    "windows.starts": KeySpec(
        "starts",
        "per window [document, offset of its first text token], ascending; windows do not overlap",
        setting=False,
    ),
    "windows.first_token_is_bos": KeySpec(
        "flag", "whether position 0 holds the start token instead of a token of the text"
    ),
    "windows.prefix": KeySpec(
        "integer",
        "number of special tokens that begin every window; 1 or 0 by first_token_is_bos if absent",
        required=False,
    ),
    "windows.packed": KeySpec(
        "flag", "whether windows may span documents; false if absent", required=False
    ),
    "libraries": KeySpec("versions", "object of versions: torch, transformers, numpy, python"),
    "command": KeySpec("texts", "argument list of the command", nullable=True, setting=False),
    "preflight": KeySpec(
        "preflight",
        "object of checks before the measurement: {name: {passed, value, tolerance}}",
        setting=False,
    ),
    "influence_method": KeySpec(
        "text", "method of the measured influence; null when it was not measured", nullable=True
    ),
    "run": KeySpec(
        "object", "how it ran: device, batch size, seconds, ...", required=False, setting=False
    ),
}
"""Manifest keys by dotted path. A stored manifest also has keys that belong to the files: `arrays`
(shape and dtype by array name), `arrays_sha256` (of arrays.safetensors) and `manifest_sha256` (of
all other keys as JSON with sorted keys and without spaces)."""
