"""Streaming statistics of the branches of each layer: stream, attention update, MLP, values.

Everything is in float64, one window and one layer at a time, so that results depend neither on the
batch nor on the partition of the windows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from posbias.errors import InstrumentationError
from posbias.measure.branch_plan import CENTRED_ENERGY, BranchPlan
from posbias.measure.coherence import chosen_queries, coherences
from posbias.measure.token_shares import alignments, mixing_shares, token_products
from posbias.measure.value_kernels import HeadProducts, add_energy_rows, plain_grams
from posbias.models.preflight import CheckedModel
from posbias.models.tap import AttentionRows, ValueRows
from posbias.models.values import ValuePath

__all__ = ["ROUNDING", "BranchSums"]

Arrays = dict[str, NDArray[Any]]

_STREAM = "stream.norm.sum"
_COHERENCE = "stream.coherence.windows"
_VALUE, _CENTRED_VALUE = "value.norm.sum", "value.centred-norm.sum"

ROUNDING = 64 * torch.finfo(torch.float64).eps
"""Relative size, in lengths, of what centring leaves of values that are all the same."""

_KEPT_BYTES = 2**28  # Products of heads of all layers up to this size are made only once.


class BranchSums:
    """Receives the branches of one forward pass after another; a `BranchObserver`.

    Clones of x and a live until their block has returned, Gram matrices of the values until the
    attention of their layer has been seen.

    Parameters
    ----------
    checked : CheckedModel
        The model and its sizes.
    plan : BranchPlan
        What to record.
    windows, length : int
        D and n.
    device : torch.device
        Where the sums live.

    Notes
    -----
    Memory is ``8 T n^2`` bytes per kernel, ``24 T n`` for lengths and ``72 D T`` for shares, and
    for one layer and batch ``8 B H^2 n``, twice that where all kernels are recorded.
    """

    def __init__(
        self,
        checked: CheckedModel,
        plan: BranchPlan,
        *,
        windows: int,
        length: int,
        device: torch.device,
    ) -> None:
        layers = checked.sizes.layers
        self._plan = plan
        self._windows = tuple(window or length for window in checked.scheme.windows)
        self._n = length
        self._device = device
        self._span = slice(0, 0)
        names = [*self._token_means(torch.ones(8, 1))]
        if plan.kernels:
            names.append(_COHERENCE)
        lengths = [_STREAM] if plan.paths is None else [_STREAM, _VALUE, _CENTRED_VALUE]
        zeros = functools.partial(torch.zeros, dtype=torch.float64, device=device)
        self._sums: dict[str, Tensor] = {
            **{name: zeros(windows, layers) for name in names},
            **{name: zeros(layers, length) for name in lengths},
            **{name: zeros(layers, length, length) for name in plan.kernels},
        }
        self._stream: Tensor | None = None
        self._update: Tensor | None = None
        self._grams: list[_Grams] = []
        self._products: dict[int, HeadProducts] = {}
        self._rows_seen = 0

    def begin(self, span: slice) -> None:
        """Announce which windows the next forward pass brings."""
        self._span = span

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """Keep x until the block returns."""
        # A clone, since some blocks write into what they were given.
        self._stream, self._update, self._grams, self._rows_seen = stream.clone(), None, [], 0

    def on_update(self, layer: int, update: Tensor) -> None:
        """Keep a until the block returns."""
        self._update = update.clone()

    def on_output(self, layer: int, output: Tensor) -> None:
        """Add the statistics of x, a and m."""
        x, a, self._stream, self._update = self._stream, self._update, None, None
        if x is None or a is None:
            raise InstrumentationError(f"layer {layer + 1} returned before its update was seen")
        if self._plan.paths is not None and self._rows_seen != self._n:
            raise InstrumentationError(
                f"the values of layer {layer + 1} were seen with {self._rows_seen} of {self._n} "
                "queries"
            )
        for index, given in enumerate(zip(x, a, output, strict=True)):
            products = token_products(*given).to(self._device)
            self._sums[_STREAM][layer] += products[0].sqrt()
            for name, values in self._token_means(products).items():
                # Row 0 of a causal kernel does not depend on the mixing.
                self._sums[name][self._span.start + index, layer] = values[1:].mean()

    def on_values(self, rows: ValueRows) -> None:
        """Add a block of rows of each kernel."""
        if self._plan.paths is None:
            return
        attention, layer = rows.attention, rows.attention.layer
        if attention.start == 0:
            self._begin_values(layer, rows, self._plan.paths[layer])
        for index, grams in enumerate(self._grams):
            self._add_rows(attention, index, grams)
            self._add_coherence(attention, index, grams)
        self._rows_seen += attention.stop - attention.start
        if attention.stop == self._n:
            self._grams = []

    def state(self) -> dict[str, Tensor]:
        """Return the sums themselves by name; filling them with those of another run resumes it."""
        return dict(self._sums)

    def finish(self) -> Arrays:
        """Return the arrays by their names in `posbias.measurement.schema`."""
        return {name: tensor.cpu().numpy() for name, tensor in self._sums.items()}

    def check_finite(self) -> None:
        """Refuse shares that are not finite; call after each pass."""
        for name, values in self._sums.items():
            if name in self._plan.kernels:  # Made of values, whose lengths are looked at.
                continue
            rows = values[self._span] if name.endswith(".windows") else values
            bad = torch.nonzero(~torch.isfinite(rows))
            if bad.numel():
                layer = int(bad[0, 1 if name.endswith(".windows") else 0]) + 1
                raise InstrumentationError(
                    f"{name.rsplit('.', 1)[0]} of layer {layer} is not finite: what the block "
                    "returns or its values overflow the format. Measure in float32"
                )

    def _token_means(self, products: Tensor) -> dict[str, Tensor]:
        """Return what is averaged over the tokens of one window, by array name."""
        shares = mixing_shares(products, with_mlp=self._plan.with_mlp)
        return {**shares, **alignments(products)}

    def _begin_values(self, layer: int, rows: ValueRows, path: ValuePath) -> None:
        """Make the Gram matrices of all windows of a batch, and add the lengths of the values."""
        heads = rows.attention.logits.shape[1]
        values = rows.values.repeat_interleave(heads // rows.values.shape[1], dim=1)
        products = self._head_products(layer, path, values)
        for window in values.to(torch.float64):
            given, centred = (
                states.to(products.dtype) for states in (window, window - window.mean(1, True))
            )
            lengths = products.energies(given)
            self._add_length(_VALUE, layer, lengths)
            self._add_length(_CENTRED_VALUE, layer, products.energies(centred))
            if self._plan.kernels:
                whole = products.grams(given) if len(self._plan.kernels) > 1 else None
                least = ROUNDING**2 * float(lengths.max())
                self._grams.append(_Grams(products, centred, products.grams(centred), whole, least))

    def _head_products(self, layer: int, path: ValuePath, values: Tensor) -> HeadProducts:
        """Return the products of the heads of a layer, kept as long as all of them are small."""
        if layer in self._products:
            return self._products[layer]
        weight = path.weight().to(values.device)
        dtype = torch.promote_types(values.dtype, torch.float32)
        products = HeadProducts(weight, values.shape[1], dtype)
        if products.nbytes * len(self._windows) <= _KEPT_BYTES:
            self._products[layer] = products
        return products

    def _add_length(self, name: str, layer: int, energies: Tensor) -> None:
        lengths = energies.to(torch.float64).sqrt().mean(0)
        self._sums[name][layer] += lengths.to(self._device)

    def _add_coherence(self, rows: AttentionRows, index: int, grams: _Grams) -> None:
        """Add the coherence of some queries of a block, as parts of a mean over all of them."""
        found = coherences(
            rows,
            index,
            centred=grams.values,
            products=grams.products,
            grams=grams.centred,
            least=grams.least,
        )
        place = self._span.start + index, rows.layer
        self._sums[_COHERENCE][place] += found.sum().to(self._device) / len(chosen_queries(self._n))

    def _add_rows(self, rows: AttentionRows, index: int, grams: _Grams) -> None:
        """Add a block of rows of one window to each kernel."""
        add = functools.partial(add_energy_rows, rows, index, window=self._windows[rows.layer])
        place = rows.layer, slice(rows.start, rows.stop), slice(rows.logits.shape[-1])
        target = {name: self._sums[name][place] for name in self._plan.kernels}
        add(grams.centred, target[CENTRED_ENERGY], rounding=(grams.least, False))
        if grams.whole is None:
            return
        heads = grams.whole.shape[0]
        attention = plain_grams(heads, self._n, like=grams.whole)
        add(attention, target["kernel.attention-energy.sum"], rounding=(0.0, False))
        add(grams.whole, target["kernel.value-energy.sum"], rounding=(grams.least, False))
        add(grams.whole, target["kernel.value.sum"], rounding=(grams.least, True))
        add(grams.centred, target["kernel.centred-value.sum"], rounding=(grams.least, True))


@dataclass(frozen=True)
class _Grams:
    """Centred values of one window, Gram matrices of these and of all, what counts as rounding."""

    products: HeadProducts
    values: Tensor
    centred: Tensor
    whole: Tensor | None
    least: float
