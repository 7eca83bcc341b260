"""Benchmarks of measurements: against plain passes of the same model over the same tokens.

Times of one batch are the intervals between the progress calls of `posbias.measure`; plain passes
run in between, in the same process. Peaks of memory come from one fresh process per variant.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import in_fresh_process, peak_bytes, reset_peak, resident_bytes, seconds
from transformers import AutoConfig, AutoModelForCausalLM

import posbias
from posbias.models.loading import load_model
from posbias.models.state import with_implementation

VARIANTS = ("forward", "measure", "output_attentions", "forward_backward", "measure_gradient")
BATCHES = 3
"""Batches per call of `measure`; the first, with the checks before it, is not timed."""

RANDOM_MODELS = {
    "llama-8x512 (random)": {
        "model_type": "llama",
        "vocab_size": 8192,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 4096,
    },
}


LONG_MODEL = (
    "llama-1x128 (random)",
    {
        "model_type": "llama",
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 65_536,
    },
)
"""A model whose windows are long: what counts is that no n x n array is made."""


def run(folder: Path, *, runs: int, quick: bool, gemma: str | None) -> list[dict[str, Any]]:
    """Return one result per model and length.

    Parameters
    ----------
    folder : Path
        For models that have to be stored first.
    runs : int
        Rounds over all variants.
    quick : bool
        One small model only, beside Gemma.
    gemma : str, optional
        A source of Gemma 3 270M, measured at 1024 and 4096 positions.
    """
    cases = [("embedded:llama", 256, "")]
    if not quick:
        cases.append(("embedded:bloom", 256, ""))
        for name, config in RANDOM_MODELS.items():
            cases.append((str(_store_random(folder, name, config)), 1024, name))
    results = [one_case(*case, runs=runs) for case in cases]
    if not quick:
        stored = str(_store_random(folder, *LONG_MODEL))
        results.append({"model": LONG_MODEL[0], **completes(stored, 32_768, kernels="summary")})
    if gemma is not None:
        stored = str(_store_gemma(folder, gemma))
        results.append(one_case(stored, 256 if quick else 1024, gemma, runs=runs))
        if not quick:
            results.append({"model": gemma, **completes(stored, 4096)})
    return results


def one_case(model: str, length: int, name: str, *, runs: int) -> dict[str, Any]:
    """Return times, ratios and peaks of all variants for one model."""
    times = times_of(model, length, runs=runs)
    peaks = {
        variant: in_fresh_process("measuring.py", model, str(length), variant)
        for variant in VARIANTS
    }
    result = {
        "model": name or model,
        "n": length,
        "runs": runs,
        "seconds": times,
        "ratio_capture": times["measure"] / times["forward"],
        "ratio_output_attentions": times["output_attentions"] / times["forward"],
        "ratio_gradient": times["measure_gradient"] / times["forward_backward"],
        "megabytes": {variant: peak["megabytes"] for variant, peak in peaks.items()},
        "megabytes_accumulators": peaks["measure"]["megabytes_accumulators"],
    }
    extra = {
        pair: peaks[ours]["megabytes"] - peaks[plain]["megabytes"]
        for pair, ours, plain in (
            ("capture", "measure", "forward"),
            ("gradient", "measure_gradient", "forward_backward"),
        )
    }
    accumulators = result["megabytes_accumulators"]
    result["megabytes_beyond_plain_and_accumulators"] = {
        pair: value - accumulators for pair, value in extra.items()
    }
    return result


def completes(model: str, length: int, *, kernels: str = "full") -> dict[str, Any]:
    """Return time and peak of a whole measurement of one window in a fresh process."""
    result = in_fresh_process("measuring.py", model, str(length), "measure_gradient", kernels)
    return {"n": length, "kernels": kernels, "whole": result}


def times_of(model: str, length: int, *, runs: int) -> dict[str, float]:
    """Return the median seconds per batch of one window of every variant."""
    bench = _Bench(model, length)
    taken: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for variant in VARIANTS:
        bench.run(variant)
    for _ in range(runs):
        for variant in VARIANTS:
            taken[variant] += bench.run(variant)
    return {variant: statistics.median(values) for variant, values in taken.items()}


class _Bench:
    """One model, its token ids, and a call per variant that returns seconds per batch."""

    def __init__(self, model: str, length: int) -> None:
        self.loaded = load_model(model)
        self.network: Any = self.loaded.model
        self.network.requires_grad_(False)
        vocabulary = self.network.config.vocab_size
        rng = np.random.default_rng(0)
        self.ids = rng.integers(3, vocabulary, size=(BATCHES, length))
        self.calls: dict[str, Callable[[], list[float]]] = {
            "forward": lambda: self._plain(self._forward),
            "measure": lambda: self._measure("none"),
            "output_attentions": lambda: self._plain(self._attentions),
            "forward_backward": lambda: self._plain(self._forward_backward),
            "measure_gradient": lambda: self._measure("gradient"),
        }

    def run(self, variant: str) -> list[float]:
        """Return the seconds of some batches."""
        return self.calls[variant]()

    def _plain(self, call: Callable[[], Any]) -> list[float]:
        small = sum(p.numel() for p in self.network.parameters()) < 20_000_000
        before = torch.get_num_threads()
        torch.set_num_threads(1 if small else before)  # as `measure` does
        try:
            return [seconds(call) for _ in range(BATCHES - 1)]
        finally:
            torch.set_num_threads(before)

    def _input(self) -> torch.Tensor:
        return torch.from_numpy(self.ids[:1])

    @torch.no_grad()
    def _forward(self) -> None:
        self.network(input_ids=self._input(), use_cache=False, **self._last())

    @torch.no_grad()
    def _attentions(self) -> None:
        with with_implementation(self.network, "eager"):
            self.network(
                input_ids=self._input(), use_cache=False, output_attentions=True, **self._last()
            )

    def _forward_backward(self) -> None:
        embedded = self.network.get_input_embeddings()(self._input())
        leaf = embedded.detach().requires_grad_(True)
        logits = self.network(inputs_embeds=leaf, use_cache=False, **self._last()).logits
        torch.softmax(logits[:, -1].double(), -1).amax(-1).sum().backward()

    def _last(self) -> dict[str, int]:
        has_it = "logits_to_keep" in signature(self.network.forward).parameters
        return {"logits_to_keep": 1} if has_it else {}

    def _measure(self, influence: str) -> list[float]:
        marks: list[float] = []
        posbias.measure(
            self.loaded,
            self.ids,
            batch_size=1,
            influence=influence,
            progress=lambda done, total: marks.append(time.perf_counter()),
        )
        batches = marks[-BATCHES:]
        return [after - before for before, after in pairwise(batches)]


def _store_random(folder: Path, name: str, settings: dict[str, Any]) -> Path:
    """Store a model with random weights beside the tokenizer of the embedded one."""
    target = folder / name.partition(" ")[0]
    torch.manual_seed(0)
    config = AutoConfig.for_model(**settings)
    AutoModelForCausalLM.from_config(config).save_pretrained(target)
    load_model("embedded:llama").tokenizer.save_pretrained(target)
    return target


def _store_gemma(folder: Path, source: str) -> Path:
    """Store the model unpacked, since unpacking takes more memory than measuring."""
    target, loaded = folder / "gemma", load_model(source)
    plain = type(loaded.model)(loaded.model.config)
    plain.load_state_dict(loaded.model.state_dict())
    if hasattr(plain.config, "quantization_config"):  # of the file, not of the unpacked weights
        del plain.config.quantization_config
    plain.save_pretrained(target)
    loaded.tokenizer.save_pretrained(target)
    return target


def _peak_once(model: str, length: int, variant: str, kernels: str | None) -> dict[str, Any]:
    """Return the peak of one variant above the loaded model, in this fresh process.

    With a way to keep kernels it is a whole measurement of one window.
    """
    bench = _Bench(model, length)
    config = bench.network.config.get_text_config()
    layers = config.num_hidden_layers
    reset_peak()
    before = resident_bytes()
    if kernels is not None:
        bench.ids = bench.ids[:1]
        options: dict[str, Any] = {"batch_size": 1, "kernels": kernels}
        taken = seconds(lambda: posbias.measure(bench.loaded, bench.ids, **options))
    else:
        taken = sum(bench.run(variant))
    return {
        "megabytes": (peak_bytes() - before) / 1e6,
        "megabytes_process": peak_bytes() / 1e6,
        "megabytes_accumulators": 8 * layers * length**2 / 1e6,
        "seconds": taken,
    }


if __name__ == "__main__":
    where, positions, which, *more = sys.argv[1:]
    print(json.dumps(_peak_once(where, int(positions), which, more[0] if more else None)))
