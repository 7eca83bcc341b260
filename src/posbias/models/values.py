"""How weighted values reach the stream: the output projection and what follows, certified.

The attention update of a token is ``a_i = s_i g * (sum_h W_h sum_j A_h[i, j] v_h[j] + b)``: W the
weight of the output projection, g a constant or the gain of an RMS norm behind it, and s_i the
scale of that norm for this token. Where modules are is searched for, and numbers decide: a module
is the output projection if what it reads is the weighted sum of the values, head after head, and
what the layer adds to its stream follows from its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posbias.errors import UnsupportedModelError
from posbias.models.instrument import instrumented
from posbias.models.sites import LayerSites, ModelSites, first_tensor
from posbias.models.state import parameter_value
from posbias.models.tap import AttentionRows, ValueRows
from posbias.models.trace import Trace, record

__all__ = ["ValuePath", "find_value_paths", "why_no_mlp"]

Forward = Callable[[], object]


@dataclass(frozen=True, eq=False)
class ValuePath:
    """The linear map from the values of one layer to its stream.

    Attributes
    ----------
    projection : Module
        The output projection.
    norm : Module or None
        RMS norm behind it, None if nothing but a constant follows.
    shift : float
        The gain of the norm is its weight plus this.
    multiplier : float
        Constant factor of the update.
    """

    projection: nn.Module
    norm: nn.Module | None = None
    shift: float = 0.0
    multiplier: float = 1.0

    def weight(self) -> Tensor:
        """Return W_O with gain and multiplier, float64, shape (C, H d); biases are left out.

        A bias is common to all tokens. The scale of a norm per token is left out too, as it
        cancels in every row of a kernel.
        """
        weight = _weight(self.projection).double() * self.multiplier
        if self.norm is None:
            return weight
        gain = parameter_value(self.norm, "weight").double() + self.shift
        return gain.to(weight.device)[:, None] * weight


def find_value_paths(sites: ModelSites, forward: Forward) -> tuple[ValuePath, ...]:
    """Return the certified way of the values of each layer.

    Parameters
    ----------
    sites : ModelSites
        Of a model that has passed its checks, in measuring state.
    forward : callable
        Runs the model once on a short window.

    Raises
    ------
    UnsupportedModelError
        If a layer has no module that reads the weighted sum of the values, or what follows it is
        neither a constant nor the gain of an RMS norm.

    Notes
    -----
    One pass; keeps the attention and the inputs of the linear modules of all layers.
    """
    watch = _Watch(sites)
    with watch.linear_inputs(), instrumented(sites, watch, branches=watch):
        forward()
    return tuple(
        _certify(layer, site, watch, _tolerance(sites.dtype))
        for layer, site in enumerate(sites.layers)
    )


def why_no_mlp(sites: ModelSites, forward: Forward) -> str | None:
    """Return why the update of the MLP is not what a block returns less x and a, None if it is.

    It is, in sequential and parallel blocks alike, if ``output - x - a`` is what a module of the
    block returned, up to a constant. In blocks with norms on the stream itself it is not.
    """
    tolerance = _tolerance(sites.dtype)
    traces = record([Trace(site.block) for site in sites.layers], forward)
    for layer, (site, trace) in enumerate(zip(sites.layers, traces, strict=True)):
        x = trace.stream if site.stream is None else trace.output_of(trace.name_of(site.stream))
        update = trace.output_of(trace.name_of(site.update))
        if x is None or update is None or trace.returned is None:
            return f"layer {layer + 1} returns nothing of the shape of its stream"
        rest = trace.returned.double() - x.double() - site.multiplier * update.double()
        scale = float(trace.returned.abs().max())
        outputs = [event.output.double() for event in trace.events if event.output is not None]
        errors = [float(rest.abs().max())]  # Blocks without an MLP add nothing more.
        for m in outputs:
            errors += [float((rest - c * m).abs().max()) for c in {1.0, site.multiplier}]
        if not min(errors) <= tolerance * scale:
            return (
                f"layer {layer + 1} does not return x + a plus the output of its MLP (a norm on "
                "the stream itself is the usual cause)"
            )
    return None


class _Watch:
    """Keeps weighted values, updates, and what linear modules read; for short windows only."""

    def __init__(self, sites: ModelSites) -> None:
        count = len(sites.layers)
        self.mixed: list[list[Tensor]] = [[] for _ in range(count)]
        self.updates: list[Tensor | None] = [None] * count
        self.reads: list[list[tuple[str, nn.Module, Tensor, Tensor]]] = [[] for _ in range(count)]
        self._sites = sites

    def linear_inputs(self) -> _Hooks:
        """Return a context in which inputs and outputs of linear modules are kept."""
        return _Hooks(self._sites.layers, self.reads)

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """See x of a layer."""

    def on_attention(self, rows: AttentionRows) -> None:
        """See a block of attention rows."""

    def on_values(self, rows: ValueRows) -> None:
        """Keep the weighted sum of the values, (B, r, H d)."""
        p = rows.attention.probabilities.double()
        groups = p.shape[1] // rows.values.shape[1]
        values = rows.values.double().repeat_interleave(groups, dim=1)[..., : p.shape[-1], :]
        self.mixed[rows.attention.layer].append((p @ values).transpose(1, 2).flatten(2))

    def on_update(self, layer: int, update: Tensor) -> None:
        """Keep a of a layer."""
        self.updates[layer] = update.double().clone()

    def on_output(self, layer: int, output: Tensor) -> None:
        """See what a block returns."""


class _Hooks:
    """Hooks on the linear modules of all blocks, as a context manager."""

    def __init__(
        self,
        layers: Sequence[LayerSites],
        reads: list[list[tuple[str, nn.Module, Tensor, Tensor]]],
    ) -> None:
        self._layers = layers
        self._reads = reads
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> None:
        for layer, site in enumerate(self._layers):
            for name, module in site.block.named_modules():
                if _is_linear(module):
                    self._attach(layer, name, module)

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _attach(self, layer: int, name: str, module: nn.Module) -> None:
        def keep(module: nn.Module, args: object, output: object) -> None:
            read, made = first_tensor(args), first_tensor(output)
            if read is not None and made is not None:
                kept = (read.detach().double().clone(), made.detach().double().clone())
                self._reads[layer].append((name, module, *kept))

        self._handles.append(module.register_forward_hook(keep))


def _certify(layer: int, site: LayerSites, watch: _Watch, tolerance: float) -> ValuePath:
    """Return the way of the values of one layer, or say where it is lost."""
    mixed, update = watch.mixed[layer], watch.updates[layer]
    if not mixed or update is None:
        raise UnsupportedModelError(
            f"layer {layer + 1}: the product of its attention with its values was not seen"
        )
    heads = torch.cat(mixed, dim=1)
    for name, module, given, made in watch.reads[layer]:
        if given.numel() != heads.numel() or given.shape[-1] != heads.shape[-1]:
            continue
        weight = _weight(module).double()
        bias = getattr(module, "bias", None)
        shift = 0.0 if bias is None else parameter_value(module, "bias").double()
        read = given.reshape(heads.shape)
        linear = read @ weight.T + shift
        if _error(read - heads, read) > tolerance:
            continue
        if _error(linear - made.reshape(linear.shape), linear) > tolerance:
            continue
        path = _follow(site, module, linear, update.reshape(linear.shape), tolerance)
        if path is not None:
            return path
        raise UnsupportedModelError(
            f"layer {layer + 1}: what follows its output projection {name!r} is neither a constant "
            "nor the gain of an RMS norm"
        )
    raise UnsupportedModelError(
        f"layer {layer + 1}: no linear module reads the weighted sum of the values, head after "
        "head. Gates on the output of the attention and packed weights are usual causes"
    )


def _follow(
    site: LayerSites, projection: nn.Module, made: Tensor, update: Tensor, tolerance: float
) -> ValuePath | None:
    """Return what turns the output of the projection into the update, None if it is not known."""
    if _error(update - site.multiplier * made, update) <= tolerance:
        return ValuePath(projection, multiplier=site.multiplier)
    weight = getattr(site.update, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 1 or weight.numel() != made.shape[-1]:
        return None
    gain = parameter_value(site.update, "weight").double()
    for shift in (0.0, 1.0):
        candidate = (gain + shift) * made
        scale = torch.linalg.vecdot(candidate, update) / torch.linalg.vecdot(candidate, candidate)
        difference = update - scale.nan_to_num().unsqueeze(-1) * candidate
        # Norms compute in float32 in models of any type.
        if _error(difference, update) <= max(tolerance, 1e-6):
            return ValuePath(projection, site.update, shift, site.multiplier)
    return None


def _is_linear(module: nn.Module) -> bool:
    """Whether a module is `torch.nn.Linear` or the Conv1D of transformers, or behaves like one."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.is_floating_point() and weight.dim() == 2


def _weight(module: nn.Module) -> Tensor:
    """Return the weight of a linear module, shape (out, in)."""
    weight = parameter_value(module, "weight")
    # Conv1D of transformers keeps it the other way round and knows its outputs as nf.
    return weight.T if hasattr(module, "nf") else weight


def _error(difference: Tensor, target: Tensor) -> float:
    scale = float(target.abs().max())
    error = float(difference.abs().max())
    return error / scale if scale > 0.0 else error


def _tolerance(dtype: torch.dtype) -> float:
    """Return the relative error up to which two ways to one number agree."""
    return {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2}.get(dtype, 5e-2)
