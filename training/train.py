"""Train the two small language models that come with posbias, from scratch, on a CPU.

``python training/train.py bloom`` (ALiBi) or ``python training/train.py llama`` (rotary positions
and a beginning-of-text token). Make the corpus first with ``training/prepare_text.py``.

The file reads from top to bottom: settings, tokenizer, data, model, learning rate, evaluation,
checkpoints, the training loop, export with the model card, command line.

The run can be interrupted at any time (SIGTERM and Ctrl-C write a checkpoint) and goes on from
``runs/<name>/checkpoint.pt`` when started again, with the same result bit for bit. The learning
rate is warmup-stable-decay: it stays constant until ``1 - decay_share`` of ``--tokens``, or until
a file ``runs/<name>/finish`` appears, and then falls to zero, so a run may be ended early.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import json
import math
import os
import platform
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import tokenizers
import torch
import torch.nn.functional as F  # noqa: N812
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = Path(__file__).resolve().parent

# ---------------------------------------------------------------------------------------------
# Settings
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """Everything that decides the result of a run, apart from the corpus."""

    name: str
    architecture: str  # "bloom" or "llama"
    vocabulary: int = 2048
    layers: int = 8
    heads: int = 8
    hidden: int = 128
    intermediate: int = 344  # llama only; bloom uses 4 * hidden
    context: int = 512
    batch: int = 8  # windows per step
    tokens: int = 10_000_000  # planned length of the run
    peak_lr: float = 3e-3
    warmup_steps: int = 100
    decay_share: float = 0.2  # share of the whole run in which the learning rate falls to zero
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    seed: int = 1611

    @property
    def uses_bos(self) -> bool:
        """Whether every window starts with the beginning-of-text token."""
        return self.architecture == "llama"


SNAPSHOT_SHARES = (0.0, 0.01, 0.05, 0.2, 0.5)  # of the planned tokens
PAD, BOS, EOS = "<pad>", "<s>", "</s>"
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2

# ---------------------------------------------------------------------------------------------
# Tokenizer
# ---------------------------------------------------------------------------------------------


def train_tokenizer(texts: list[str], settings: Settings) -> transformers.PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer; the llama one puts ``<s>`` in front of every text."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    if settings.uses_bos:
        bpe.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A",
            pair=f"{BOS} $A {BOS} $B:1",
            special_tokens=[(BOS, BOS_ID)],
        )
    wrapper: Any = transformers.PreTrainedTokenizerFast  # untyped in the library
    tokenizer: transformers.PreTrainedTokenizerFast = wrapper(
        tokenizer_object=bpe,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
    )
    return tokenizer


def encode(tokenizer: transformers.PreTrainedTokenizerFast, text: str) -> list[int]:
    """Return the token ids of a text, without special tokens."""
    return list(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)


# ---------------------------------------------------------------------------------------------
# Data
# ---------------------------------------------------------------------------------------------


def read_documents(corpus: Path) -> list[str]:
    """Return the training documents in a fixed order."""
    return [path.read_text(encoding="utf-8") for path in sorted((corpus / "train").glob("*.txt"))]


def token_stream(
    documents: list[str], tokenizer: transformers.PreTrainedTokenizerFast
) -> torch.Tensor:
    """Join all documents into one row of token ids, each document followed by ``</s>``."""
    return torch.tensor([i for text in documents for i in [*encode(tokenizer, text), EOS_ID]])


def cut(stream: torch.Tensor, start: int, settings: Settings) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of the window whose first target is ``stream[start]``.

    The token before the first target is ``<s>`` if the model uses it, else the one that precedes
    it in the stream.
    """
    targets = stream[start : start + settings.context]
    inputs = stream[start - 1 : start - 1 + len(targets)].clone()
    if settings.uses_bos:
        inputs[0] = BOS_ID
    return inputs, targets


def get_batch(
    stream: torch.Tensor, step: int, settings: Settings
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the windows of one step: a pure function of the seed and the step.

    Each epoch cuts the stream into windows that do not overlap, starting at a random phase, and
    goes through them in random order. Both come from a generator seeded with seed and epoch, so
    an interrupted run needs no other state to go on with exactly the same windows.
    """
    per_epoch = (len(stream) - 1) // settings.context - 1  # one window less: room for the phase
    starts = []
    for index in range(step * settings.batch, (step + 1) * settings.batch):
        epoch, position = divmod(index, per_epoch)
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + epoch)
        phase = int(torch.randint(settings.context, (1,), generator=generator))
        order = torch.randperm(per_epoch, generator=generator)
        starts.append(1 + phase + settings.context * int(order[position]))
    windows = [cut(stream, start, settings) for start in starts]
    return torch.stack([w[0] for w in windows]), torch.stack([w[1] for w in windows])


# ---------------------------------------------------------------------------------------------
# Model and optimizer
# ---------------------------------------------------------------------------------------------


def build_model(settings: Settings) -> Any:
    """Return a freshly initialised model of the Transformers library.

    Matrices start with standard deviation 0.05; those that write to the residual stream are made
    smaller by ``sqrt(2 * layers)``, as in GPT-2.
    """
    torch.manual_seed(settings.seed)
    shared: dict[str, Any] = {
        "vocab_size": settings.vocabulary,
        "tie_word_embeddings": True,
        "initializer_range": 0.05,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
    }
    model: Any
    if settings.architecture == "bloom":
        model = transformers.BloomForCausalLM(
            transformers.BloomConfig(
                hidden_size=settings.hidden,
                n_layer=settings.layers,
                n_head=settings.heads,
                hidden_dropout=0.0,
                attention_dropout=0.0,
                **shared,
            )
        )
        outputs = ("self_attention.dense.weight", "mlp.dense_4h_to_h.weight")
    else:
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                hidden_size=settings.hidden,
                intermediate_size=settings.intermediate,
                num_hidden_layers=settings.layers,
                num_attention_heads=settings.heads,
                num_key_value_heads=settings.heads,
                max_position_embeddings=settings.context,
                **shared,
            )
        )
        outputs = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(outputs):
                parameter.div_(math.sqrt(2 * settings.layers))
    return model


def fused_bloom_attention(
    layer: Any,
    hidden_states: torch.Tensor,
    residual: torch.Tensor,
    alibi: torch.Tensor,
    attention_mask: torch.Tensor,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Compute what ``BloomAttention.forward`` computes, about three times as fast on a CPU.

    Transformers has no fused attention for BLOOM. This one is used for training only and assumes
    what holds there: whole windows without padding, no cache, no dropout.
    """
    batch, length, width = hidden_states.shape
    heads, size = layer.num_heads, layer.head_dim
    fused = layer.query_key_value(hidden_states).view(batch, length, heads, 3, size)
    query, key, value = (fused[..., i, :].transpose(1, 2) for i in range(3))
    bias = alibi[:heads].view(1, heads, 1, length) + attention_mask[:1]  # same for every window
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    return residual + layer.dense(mixed.transpose(1, 2).reshape(batch, length, width)), None


def make_faster(model: Any) -> None:
    """Use fused attention and GELU in a BLOOM model for training; Llama has its own already."""
    if model.config.model_type == "bloom":
        for block in model.transformer.h:
            attention = block.self_attention
            attention.forward = functools.partial(fused_bloom_attention, attention)
            block.mlp.gelu_impl = torch.nn.GELU(approximate="tanh")


def build_optimizer(model: Any, settings: Settings) -> torch.optim.AdamW:
    """Return AdamW with weight decay on the matrices only (not on biases, norms, embeddings)."""
    decayed: list[torch.Tensor] = []
    plain: list[torch.Tensor] = []
    for name, parameter in model.named_parameters():
        matrix = parameter.dim() >= 2 and "embed" not in name
        (decayed if matrix else plain).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.peak_lr, betas=settings.betas)


def next_token_loss(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy per token, in nats."""
    logits = model(input_ids=inputs, use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


# ---------------------------------------------------------------------------------------------
# Learning rate
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schedule:
    """Warmup, then constant, then linear decay over ``[decay_start, end)``, in steps."""

    decay_start: int
    end: int
    ended_early: bool = False


def planned_schedule(settings: Settings) -> Schedule:
    """Return the schedule that uses all the planned tokens."""
    end = max(settings.tokens // (settings.batch * settings.context), 1)
    return Schedule(decay_start=round(end * (1 - settings.decay_share)), end=end)


def early_schedule(step: int, settings: Settings) -> Schedule:
    """Return a schedule that decays from now on, for ``decay_share`` of the shortened run."""
    length = max(round(step * settings.decay_share / (1 - settings.decay_share)), 1)
    return Schedule(decay_start=step, end=step + length, ended_early=True)


def learning_rate(step: int, schedule: Schedule, settings: Settings) -> float:
    """Return the learning rate of one step."""
    rate = settings.peak_lr * min(1.0, (step + 1) / settings.warmup_steps)
    if step >= schedule.decay_start:
        rate *= (schedule.end - step) / (schedule.end - schedule.decay_start + 1)
    return rate


# ---------------------------------------------------------------------------------------------
# Evaluation
# ---------------------------------------------------------------------------------------------


@torch.no_grad()
def evaluate(
    model: Any,
    tokenizer: transformers.PreTrainedTokenizerFast,
    text: str,
    settings: Settings,
    unigram: torch.Tensor | None = None,
    max_windows: int | None = None,
) -> dict[str, float]:
    """Measure the loss on a text, in windows of the training length that do not overlap.

    Every token is predicted once, except the very first one. The number of bytes is that of the
    predicted tokens.

    Parameters
    ----------
    model, tokenizer, text, settings
        What to measure, and on what.
    unigram
        Counts of the tokens in the training text. If given, the entropy of single tokens is
        reported too: what a model scores that knows how frequent tokens are, and nothing else.
    max_windows
        Stop early, for a quick look.
    """
    ids = torch.tensor(encode(tokenizer, text))
    starts = list(range(1, len(ids), settings.context))[:max_windows]
    model.eval()
    total, count = 0.0, 0
    for start in starts:
        inputs, targets = cut(ids, start, settings)
        total += float(next_token_loss(model, inputs[None], targets[None])) * len(targets)
        count += len(targets)
    predicted = ids[1 : 1 + count]
    size = len(tokenizer.backend_tokenizer.decode(predicted.tolist()).encode())
    result = {
        "loss_nats_per_token": total / count,
        "loss_nats_per_byte": total / size,
        "bits_per_byte": total / size / math.log(2),
        "tokens": count,
        "bytes": size,
    }
    if unigram is not None:
        own = torch.bincount(predicted, minlength=settings.vocabulary).double()
        result["unigram_entropy_nats_per_token"] = float(torch.special.entr(own / count).sum())
        smoothed = ((unigram + 1) / (unigram + 1).sum()).log()
        result["training_unigram_loss_nats_per_token"] = float(-smoothed[predicted].mean())
    return result


# ---------------------------------------------------------------------------------------------
# Checkpoints
# ---------------------------------------------------------------------------------------------


def write_atomically(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint so that an interruption leaves either the old one or the new one."""
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def save_snapshot(model: Any, path: Path) -> None:
    """Save the weights alone, as float16."""
    weights = {name: p.detach().half().contiguous() for name, p in model.named_parameters()}
    safetensors.torch.save_file(weights, path)


@dataclass
class Progress:
    """What a run has done so far, next to the weights and the optimizer."""

    step: int = 0
    schedule: Schedule = Schedule(0, 0)
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    starts: int = 0
    losses: list[float] = dataclasses.field(default_factory=list)  # of every step

    def state(self, model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Return everything a checkpoint holds."""
        return {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "progress": dataclasses.asdict(self),
        }


def resume(path: Path, model: Any, optimizer: torch.optim.Optimizer) -> Progress | None:
    """Load a checkpoint if there is one."""
    if not path.exists():
        return None
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    fields = state["progress"]
    return Progress(**(fields | {"schedule": Schedule(**fields["schedule"])}))


class StopRequest:
    """Remembers that the process was asked to end."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, *_: object) -> None:
        """Handle the signal."""
        self.asked = True

    def listen(self) -> None:
        """Take over SIGTERM and SIGINT."""
        signal.signal(signal.SIGTERM, self)
        signal.signal(signal.SIGINT, self)


# ---------------------------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------------------------


def optimizer_step(
    model: Any, optimizer: torch.optim.Optimizer, stream: torch.Tensor, run: Progress, s: Settings
) -> float:
    """Take one step on one batch and return its loss before the step."""
    rate = learning_rate(run.step, run.schedule, s)
    for group in optimizer.param_groups:
        group["lr"] = rate
    model.train()
    loss = next_token_loss(model, *get_batch(stream, run.step, s))
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), s.clip)
    optimizer.step()
    return float(loss.detach())


def clocked(run: Progress) -> Iterator[None]:
    """Yield forever, adding the time between two yields to the run's CPU and wall time."""
    cpu, wall = time.process_time(), time.monotonic()
    while True:
        yield
        now_cpu, now_wall = time.process_time(), time.monotonic()
        run.cpu_seconds += now_cpu - cpu
        run.wall_seconds += now_wall - wall
        cpu, wall = now_cpu, now_wall


def train(
    settings: Settings,
    stream: torch.Tensor,
    folder: Path,
    stop: StopRequest,
    save_every: float = 180.0,
    stop_at_step: int | None = None,
) -> tuple[Any, Progress]:
    """Train until the schedule ends, or until asked to stop.

    Parameters
    ----------
    settings, stream
        What to train, and the training tokens.
    folder
        The run's folder: ``checkpoint.pt``, ``snapshots/``, and ``finish`` to end it early.
    stop
        Checked after every step.
    save_every
        Seconds between checkpoints.
    stop_at_step
        Stop there as if asked to (for tests).

    Returns
    -------
    model, progress
        The run is complete if ``progress.step == progress.schedule.end``.
    """
    (folder / "snapshots").mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    model = build_model(settings)
    make_faster(model)
    optimizer = build_optimizer(model, settings)
    run = resume(checkpoint, model, optimizer) or Progress(schedule=planned_schedule(settings))
    run.starts += 1
    planned = planned_schedule(settings).end
    snapshots = {round(share * planned): share for share in SNAPSHOT_SHARES}
    clock = clocked(run)
    next(clock)
    saved = time.monotonic()

    while run.step < run.schedule.end and not stop.asked and run.step != stop_at_step:
        if run.step in snapshots:
            save_snapshot(model, folder / "snapshots" / f"step{run.step:06d}.safetensors")
        if (folder / "finish").exists() and run.step < run.schedule.decay_start:
            run.schedule = early_schedule(run.step, settings)
        run.losses.append(optimizer_step(model, optimizer, stream, run, settings))
        run.step += 1
        next(clock)
        if run.step % 20 == 0:
            tokens = run.step * settings.batch * settings.context
            print(
                f"step {run.step}/{run.schedule.end}  tokens {tokens / 1e6:.2f}M  "
                f"loss {sum(run.losses[-20:]) / 20:.4f}  "
                f"lr {learning_rate(run.step - 1, run.schedule, settings):.2e}  "
                f"{tokens / run.wall_seconds:.0f} tokens/s  {run.wall_seconds / 60:.1f} min",
                flush=True,
            )
        if time.monotonic() - saved > save_every:
            write_atomically(checkpoint, run.state(model, optimizer))
            saved = time.monotonic()
    write_atomically(checkpoint, run.state(model, optimizer))
    return model, run


# ---------------------------------------------------------------------------------------------
# Export
# ---------------------------------------------------------------------------------------------


def export(
    model: Any,
    tokenizer: transformers.PreTrainedTokenizerFast,
    stream: torch.Tensor,
    run: Progress,
    settings: Settings,
    corpus: Path,
    target: Path,
) -> dict[str, Any]:
    """Write float16 weights, tokenizer and model card, and measure what was written.

    Losses are those of the written weights, loaded again and evaluated in float32.
    """
    target.mkdir(parents=True, exist_ok=True)
    texts = {
        "held_out_kjv": (corpus / "val_kjv.txt").read_text(encoding="utf-8"),
        "held_out_plays": (corpus / "val_plays.txt").read_text(encoding="utf-8"),
    }
    kjv = texts["held_out_kjv"]
    before = evaluate(model, tokenizer, kjv, settings)["loss_nats_per_token"]
    rounded = build_model(settings)
    rounded.load_state_dict(model.state_dict())
    rounded.half().save_pretrained(target)
    (target / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(target)

    shipped: Any = transformers.AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    counts = torch.bincount(stream, minlength=settings.vocabulary).double()
    validation = {
        name: evaluate(shipped, tokenizer, text, settings, counts) for name, text in texts.items()
    }
    weights = target / "model.safetensors"
    tokens = run.step * settings.batch * settings.context
    last = run.losses[-100:]
    card = {
        "name": settings.name,
        "model_class": type(shipped).__name__,
        "parameters": sum(p.numel() for p in shipped.parameters()),
        "settings": dataclasses.asdict(settings) | {"betas": list(settings.betas)},
        "complete": run.step == run.schedule.end,
        "steps": run.step,
        "decay_start_step": run.schedule.decay_start,
        "ended_early_by_finish_file": run.schedule.ended_early,
        "tokens_seen": tokens,
        "training_tokens": len(stream),
        "epochs": tokens / len(stream),
        "train_loss_nats_per_token": sum(last) / len(last) if last else None,
        "train_loss_steps": len(last),
        "validation": validation,
        "float16_rounding_changes_kjv_loss_by": (
            validation["held_out_kjv"]["loss_nats_per_token"] - before
        ),
        "corpus": json.loads((corpus / "report.json").read_text(encoding="utf-8")),
        "cpu_seconds": run.cpu_seconds,
        "wall_seconds": run.wall_seconds,
        "process_starts": run.starts,
        "threads": torch.get_num_threads(),
        "weights_bytes": weights.stat().st_size,
        "weights_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "weights_dtype": "float16",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
            "safetensors": safetensors.__version__,
            "numpy": np.__version__,
        },
        "licence": {"weights": "MIT", "training_text": "public domain"},
    }
    (target / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    (target / "README.md").write_text(card_text(card), encoding="utf-8")
    return card


def card_text(card: dict[str, Any]) -> str:
    """Return the model card for people; every number comes from the machine-readable card."""
    s, corpus, versions = card["settings"], card["corpus"], card["versions"]
    positions = {
        "bloom": "ALiBi position biases, no beginning-of-text token",
        "llama": "rotary positions, `<s>` put in front of every text by the tokenizer",
    }[s["architecture"]]
    end = {
        (True, False): "as planned",
        (True, True): "earlier than planned, with a full decay of the learning rate",
        (False, False): "not yet: these are weights of an unfinished run",
        (False, True): "not yet: these are weights of an unfinished run",
    }[card["complete"], card["ended_early_by_finish_file"]]
    rows = "\n".join(
        f"| {title} | {v['tokens']} | {v['loss_nats_per_token']:.4f} "
        f"| {v['loss_nats_per_byte']:.4f} | {v['bits_per_byte']:.4f} "
        f"| {v['unigram_entropy_nats_per_token']:.4f} "
        f"| {v['training_unigram_loss_nats_per_token']:.4f} |"
        for title, v in (
            ("King James Bible", card["validation"]["held_out_kjv"]),
            ("Shakespeare", card["validation"]["held_out_plays"]),
        )
    )
    change = card["float16_rounding_changes_kjv_loss_by"]
    shares = [corpus[f"val_{k}_overlap"]["ngrams_shared_share"] for k in ("kjv", "plays")]
    return f"""# posbias model `{card["name"]}`

A small language model trained from scratch for measuring position bias without downloads:
`{card["model_class"]}`, {positions}. {s["layers"]} layers, {s["heads"]} heads, hidden size
{s["hidden"]}, tied embeddings, no dropout, {card["parameters"]} parameters, byte-level BPE of
{s["vocabulary"]} tokens, trained on windows of {s["context"]} tokens. The weights are float16
({card["weights_bytes"]} bytes).

**Intended use.** Examples, tests and measurements in the posbias package. It has learnt the
statistics of two old books; it is no source of facts and is not meant to talk to people. Contexts
longer than {s["context"]} tokens were never seen in training.

**Licence.** Weights: MIT, as the package. Training text: public domain.

**Data.** {corpus["train_documents"]} documents, {corpus["train_bytes"]} bytes,
{card["training_tokens"]} tokens: the King James Bible ({corpus["train_bytes_kjv"]} bytes) and
Shakespeare's plays. Held out, whole: the books {", ".join(corpus["held_out_books"])} (shipped as
`posbias/data/text/sample.txt`) and the plays {", ".join(corpus["held_out_plays"])}. Left out:
{", ".join(corpus["excluded_plays"])}. Of the held-out runs of eight words, {100 * shares[0]:.2f} %
(Bible) and {100 * shares[1]:.3f} % (plays) occur in the training text. See `training/README.md`.

**Training.** {card["tokens_seen"]} tokens ({card["epochs"]:.2f} epochs) in {card["steps"]} steps of
{s["batch"]} windows; AdamW, peak learning rate {s["peak_lr"]}, constant until step
{card["decay_start_step"]}, then decaying to zero; seed {s["seed"]}; float32 on
{card["threads"]} CPU thread(s), {card["cpu_seconds"] / 60:.1f} minutes of CPU time,
{card["wall_seconds"] / 60:.1f} minutes of wall time. Ended {end}. Mean training loss of the last
{card["train_loss_steps"]} steps: {card["train_loss_nats_per_token"]:.4f} nats per token.

**Validation.** Loss of the float16 weights, computed in float32, in windows of {s["context"]}
tokens that do not overlap. Rounding to float16 changes the Bible's loss by {change:+.6f}.

| held-out text | tokens | nats/token | nats/byte | bits/byte | unigram entropy | unigram loss |
|---|---|---|---|---|---|---|
{rows}

Unigram entropy is the entropy of the held-out text's own token frequencies, in nats per token;
unigram loss that of a model which knows only the token frequencies of the training text.

**Versions.** {", ".join(f"{k} {v}" for k, v in versions.items())}.

All numbers are written by `training/train.py`; `card.json` has them in full.
"""


# ---------------------------------------------------------------------------------------------
# Command line
# ---------------------------------------------------------------------------------------------

PRESETS = {
    "bloom": Settings(name="bloom", architecture="bloom"),
    "llama": Settings(name="llama", architecture="llama"),
}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=sorted(PRESETS))
    parser.add_argument("--tokens", type=int, help="length of the run")
    parser.add_argument("--lr", type=float, help="peak learning rate")
    parser.add_argument("--corpus", type=Path, default=HERE / "runs" / "corpus")
    parser.add_argument("--runs", type=Path, default=HERE / "runs")
    parser.add_argument(
        "--out", type=Path, default=HERE.parent / "src" / "posbias" / "data" / "models"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--export-now", action="store_true", help="export the latest checkpoint and do not train"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    settings = PRESETS[args.model]
    settings = dataclasses.replace(
        settings, tokens=args.tokens or settings.tokens, peak_lr=args.lr or settings.peak_lr
    )
    documents = read_documents(args.corpus)
    tokenizer = train_tokenizer(documents, settings)
    stream = token_stream(documents, tokenizer)
    print(f"{len(stream)} training tokens; {settings}", flush=True)
    folder = args.runs / settings.name

    if args.export_now:
        model = build_model(settings)
        state = resume(folder / "checkpoint.pt", model, build_optimizer(model, settings))
        if state is None:
            raise SystemExit("no checkpoint yet")
        run = state
    else:
        stop = StopRequest()
        stop.listen()
        model, run = train(settings, stream, folder, stop)
        if run.step < run.schedule.end:
            print(f"stopped at step {run.step}; start again to go on", flush=True)
            return
    card = export(model, tokenizer, stream, run, settings, args.corpus, args.out / settings.name)
    print(json.dumps(card, indent=2))


if __name__ == "__main__":
    main()
