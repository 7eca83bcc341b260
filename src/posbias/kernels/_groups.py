"""The fast code for each kind of heads of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from posbias.kernels._alibi import EXTREME, AlibiHeads
from posbias.kernels._bank import AlibiBank
from posbias.kernels._chains import ChainBank, Exponentials, are_chains
from posbias.kernels._lags import LagBank
from posbias.kernels._layer import Law, Layer
from posbias.kernels._runs import RunBank, runs_of
from posbias.kernels.masks import Band
from posbias.kernels.positions import ALiBi, NoPE

__all__ = ["Group", "bank_groups", "groups_of"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_KEPT = 2**18
_AT_ONCE = 2**20
_MOST_RUNS = 128
_SAFE = 300.0
_MOST_ALIKE = 4


class Group(Protocol):
    """A weighted sum of heads as an operator."""

    def rmatvec(self, p: Vector) -> Vector:
        """Return ``p @ A``, shape (n,), a new array."""

    def matvec(self, v: Vector) -> Vector:
        """Return ``A @ v``, shape (n,), a new array."""

    def diagonal(self) -> Vector:
        """Return the diagonal of A, shape (n,)."""


class Bank(Protocol):
    """The off-diagonal laws of C heads: rows of A without their diagonal, summing to one.

    `log_mass` is the logarithm of the total weight of these keys, shape (n, C).
    """

    log_mass: Matrix

    def rmatvec(self, h: Matrix) -> Vector:
        """Return the sum of ``h_c @ law_c``, `h` of shape (n, C); shape (n,)."""

    def matvec(self, v: Vector) -> Matrix:
        """Return ``law_c @ v`` for every law, shape (n, C)."""


class LawGroup:
    """Heads with the laws of one bank: ``A[i] = own_i e_i + sum over c of off_ic law_c[i]``.

    The bank is kept when small and made anew for every product when large, so that a long
    context needs memory for one group of laws at a time.

    Parameters
    ----------
    layer : Layer
        The layer of the heads.
    laws : sequence of Law
        All exponential, or one.
    """

    def __init__(self, layer: Layer, laws: Sequence[Law]) -> None:
        self._layer = layer
        self._laws = laws
        self._built: tuple[Bank, Matrix, Vector] | None = None
        if any(np.isneginf(law.heads[0].position.lag_logits(1)[0]) for law in laws):
            self._build()  # a query might see no key at all: say so now

    def rmatvec(self, p: Vector) -> Vector:
        """Return ``p @ A``, shape (n,)."""
        bank, off, own = self._build()
        return np.asarray(own * p + bank.rmatvec(off * p[:, None]))

    def matvec(self, v: Vector) -> Vector:
        """Return ``A @ v``, shape (n,)."""
        bank, off, own = self._build()
        return np.asarray(own * v + np.einsum("ic,ic->i", off, bank.matvec(v)))

    def diagonal(self) -> Vector:
        """Return the diagonal of A, shape (n,)."""
        return self._build()[2]

    def _build(self) -> tuple[Bank, Matrix, Vector]:
        """Return the bank, the shares of the laws, (n, C), and of the diagonal, (n,)."""
        if self._built is not None:
            return self._built
        bank = _bank(self._layer, self._laws)
        off, own = np.empty_like(bank.log_mass), np.zeros(self._layer.n)
        for c, law in enumerate(self._laws):
            off[:, c], kept = law.shares(self._layer, bank.log_mass[:, c])
            own += kept
        built = bank, off, own
        if off.size <= _KEPT:
            self._built = built
        return built


def groups_of(layer: Layer, laws: Sequence[Law]) -> list[Group]:
    """Return groups whose sum is the weighted mixture of all heads, the fastest for each law."""
    quick, chained, others = [], [], []
    for law in laws:
        if not _is_exponential(law) or not are_chains(layer.bands, layer.n):
            others.append(law)
        elif _is_quick(layer, law):
            quick.append(law)
        else:
            chained.append(law)
    groups: list[Group] = [LawGroup(layer, [law]) for law in others]
    if sum(len(law.heads) for law in quick) > _MOST_ALIKE * len(quick):
        chained += quick  # many heads per law, as without position encoding
    elif quick:
        groups.append(_alibi_heads(layer, quick))
    step = max(1, _AT_ONCE // layer.n)
    groups += [LawGroup(layer, chained[k : k + step]) for k in range(0, len(chained), step)]
    return groups


def bank_groups(layer: Layer, bank: AlibiBank, weights: Vector) -> list[Group] | None:
    """Return what `groups_of` returns for the heads of a bank, None if they do not fit one code.

    Parameters
    ----------
    layer : Layer
        The layer of the heads.
    bank : AlibiBank
        The heads.
    weights : ndarray, shape (H,)
        Their weights, summing to one.
    """
    slopes, diagonals = bank.slopes, bank.diagonals
    if not weights.all():
        used = weights > 0.0
        slopes, diagonals, weights = slopes[used], diagonals[used], weights[used]
    limit = EXTREME * layer.temperature
    if not _is_plainly_causal(layer) or slopes.min() < 0.0:
        return None
    if max(slopes.max(), diagonals.max(), -diagonals.min()) > limit:
        return None
    if slopes.size > _MOST_ALIKE * len(set(slopes.tolist())):
        return None
    return [AlibiHeads(layer.n, slopes / layer.temperature, diagonals / layer.temperature, weights)]


def _is_plainly_causal(layer: Layer) -> bool:
    return layer.bands == ((Band(False, 1, layer.n - 1, layer.n),) if layer.n > 1 else ())


def _is_exponential(law: Law) -> bool:
    return isinstance(law.heads[0].position, (NoPE, ALiBi))


def _is_quick(layer: Layer, law: Law) -> bool:
    """Whether an exponential law fits the code for causal ALiBi heads."""
    head = law.heads[0]
    if not _is_plainly_causal(layer):
        return False
    if head.key is not None or head.sink is not None:
        return False
    limit = EXTREME * layer.temperature
    return 0.0 <= _slope(law) <= limit and all(abs(h.diagonal) <= limit for h in law.heads)


def _slope(law: Law) -> float:
    position = law.heads[0].position
    return position.slope if isinstance(position, ALiBi) else 0.0


def _alibi_heads(layer: Layer, laws: Sequence[Law]) -> AlibiHeads:
    members = [
        (_slope(law), head.diagonal, weight)
        for law in laws
        for head, weight in zip(law.heads, law.weights, strict=True)
    ]
    slopes, diagonals, weights = np.array(members).T
    return AlibiHeads(layer.n, slopes / layer.temperature, diagonals / layer.temperature, weights)


def _bank(layer: Layer, laws: Sequence[Law]) -> Bank:
    """Return the fast code for some laws of one kind."""
    if _is_exponential(laws[0]) and are_chains(layer.bands, layer.n):
        return _chain_bank(layer, laws)
    (law,) = laws
    keys, position = law.keys(layer), law.heads[0].position
    past = position.lag_logits(layer.n) / layer.temperature
    future = past
    if any(band.future for band in layer.bands):
        future = position.future_logits(layer.n) / layer.temperature
    runs = runs_of(past, future, layer.bands)
    if 0 < len(runs) <= _MOST_RUNS:
        reach = np.ptp([run.logit for run in runs]) + (0.0 if keys is None else np.ptp(keys))
        if reach <= _SAFE:
            return RunBank(layer.n, runs, keys)
    return LagBank(past, future, keys, layer.bands)


def _chain_bank(layer: Layer, laws: Sequence[Law]) -> ChainBank:
    past = np.array([_slope(law) for law in laws]) / layer.temperature
    is_signed = [getattr(law.heads[0].position, "future", "") == "signed" for law in laws]
    keys = [law.keys(layer) for law in laws]
    table = None
    if any(key is not None for key in keys):
        table = np.stack([np.zeros(layer.n) if key is None else key for key in keys], axis=1)
    weights = Exponentials(past, np.where(is_signed, -past, past), table)
    return ChainBank(layer.n, weights, layer.bands)
