"""Arrays behind the estimators beyond the paper's: mixing, kernels, stream and values.

With x the stream that enters the attention branch, a its update and m the update of the MLP (what
the block returns less x and a); an index c: less the mean over the tokens of the window. Shares are
means over the tokens 1..n-1, as row 0 of a causal kernel does not depend on the mixing. W_O is all
that is linear between the weighted sum of the values and the stream: output projection, multiplier,
and the gain of an RMS norm behind it, whose scale per token cancels in a row.
"""

from __future__ import annotations

from collections.abc import Mapping

from posbias.measurement._array_spec import ArraySpec

__all__ = [
    "ESTIMATOR_ARRAYS",
    "FURTHER_MIXINGS",
    "JACOBIAN",
    "MEASURED_KERNELS",
    "VALUE_KERNELS",
    "mixing_array",
]

_SHARES = {
    "centred": "|a_c| / (|x_c| + |a_c|)",
    "energy": "|a|^2 / (|x|^2 + |a|^2)",
    "centred-energy": "|a_c|^2 / (|x_c|^2 + |a_c|^2)",
    "norm+mlp": "|a| / (|x| + |a| + |m|)",
    "centred+mlp": "|a_c| / (|x_c| + |a_c| + |m_c|)",
    "energy+mlp": "|a|^2 / (|x|^2 + |a|^2 + |m|^2)",
    "centred-energy+mlp": "|a_c|^2 / (|x_c|^2 + |a_c|^2 + |m_c|^2)",
}

JACOBIAN = "jacobian"
"""Name of the mixing from local derivatives, see `posbias.measure.jacobian`."""

FURTHER_MIXINGS = (*_SHARES, JACOBIAN)
"""Estimators of the mixing coefficient that a measurement may hold beside `ESTIMATORS`."""

VALUE_KERNELS: Mapping[str, str] = {
    "attention-energy": "kernel.attention-energy.sum",
    "value-weighted": "kernel.value.sum",
    "value-weighted-energy": "kernel.value-energy.sum",
    "centred-value-weighted": "kernel.centred-value.sum",
    "centred-value-weighted-energy": "kernel.centred-value-energy.sum",
}
"""Array of each kind of measured kernel beside the attention itself."""

MEASURED_KERNELS: Mapping[str, str] = {"attention": "kernel.attention.sum", **VALUE_KERNELS}
"""Array of each kind of measured kernel."""

_ROW_BY_ROW = {
    "kernel.attention-energy.sum": "mean over heads of A_h[i,j]^2",
    "kernel.value.sum": "|sum_h A_h[i,j] W_O^h v_h[j]|",
    "kernel.value-energy.sum": "|sum_h A_h[i,j] W_O^h v_h[j]|^2",
    "kernel.centred-value.sum": "|sum_h A_h[i,j] W_O^h (v_h[j] - mean_k v_h[k])|",
    "kernel.centred-value-energy.sum": "|sum_h A_h[i,j] W_O^h (v_h[j] - mean_k v_h[k])|^2",
}


def mixing_array(estimator: str) -> str:
    """Return the array name of an estimator of the mixing coefficient."""
    return f"mixing.{estimator}.windows"


def _share(description: str) -> ArraySpec:
    return ArraySpec(("D", "T"), "share", description, low=0.0, high=1.0, required=False)


def _kernel(entry: str) -> ArraySpec:
    return ArraySpec(
        ("T", "n", "n"),
        "share, summed over windows",
        f"sum over windows of {entry}, each row divided by its sum; a row of zeros, a token to "
        "which attention adds nothing, is 1 on the diagonal; zero above the diagonal",
        low=0.0,
        merge="sum",
        required=False,
    )


def _cosine(description: str) -> ArraySpec:
    return ArraySpec(("D", "T"), "cosine", description, low=-1.0, high=1.0, required=False)


def _length(description: str) -> ArraySpec:
    return ArraySpec(
        ("T", "n"),
        "length in the stream, summed over windows",
        f"sum over windows of {description} of one token",
        low=0.0,
        merge="sum",
        required=False,
    )


ESTIMATOR_ARRAYS: Mapping[str, ArraySpec] = {
    **{mixing_array(name): _share(f"mean of {text}") for name, text in _SHARES.items()},
    mixing_array(JACOBIAN): _share(
        "mean over random cotangents of the share of the attention path in the energy of the "
        "derivative of x + a"
    ),
    "stream.alignment.windows": _cosine(
        "mean cosine of x and a over tokens 1..n-1; 0 where one of them is zero"
    ),
    "stream.centred-alignment.windows": _cosine("the same of x_c and a_c"),
    "stream.coherence.windows": ArraySpec(
        ("D", "T"),
        "ratio of energies",
        "mean over queries of |sum_j c_j|^2 / sum_j |c_j|^2 with c_j = sum_h A_h[i,j] W_O^h "
        "(v_h[j] - mean_k v_h[k]); 1 where what different keys bring is unrelated",
        low=0.0,
        required=False,
    ),
    "stream.norm.sum": _length("|x|"),
    "value.norm.sum": _length("the mean over heads of |W_O^h v_h|"),
    "value.centred-norm.sum": _length("the mean over heads of |W_O^h (v_h - mean_k v_h[k])|"),
    **{name: _kernel(entry) for name, entry in _ROW_BY_ROW.items()},
}
"""Arrays by name, all optional."""
