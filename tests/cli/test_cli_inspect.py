"""posbias inspect: what it prints, and models that must be refused with exit code 3."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.models.llama import modeling_llama

from posbias.cli import main
from posbias.models import sites
from posbias.models.architectures import architecture_of

torch.set_num_threads(1)

SMALL = ["--length", "24"]
Capture = pytest.CaptureFixture[str]


def test_layers_checks_and_tokenizer_are_printed(capsys: Capture) -> None:
    assert main(["inspect", "embedded:bloom", *SMALL]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert captured.err == ""
    assert "BloomForCausalLM" in lines[0]
    assert "position 0 holds text" in lines[1]
    rows = [line.split() for line in lines if " self_attention.dense " in line]
    assert [row[0] for row in rows] == [str(t) for t in range(1, 9)]
    assert rows[0][2:7] == ["pre", "sequential", "8", "8", "alibi"]
    assert rows[0][7:10] == ["0.003906", "to", "0.5"]
    assert sum(line.endswith("passed") for line in map(str.rstrip, lines)) == 15
    # BLOOM has one attention implementation only.
    assert any("eager equals sdpa" in line and "not applicable" in line for line in lines)
    assert "FAILED" not in captured.out
    assert lines[-1] == "Attention sinks are looked for on a TEXT; none was given."


def test_json_has_what_the_table_shows(capsys: Capture, tmp_path: Path) -> None:
    assert main(["inspect", "embedded:llama", "--json", *SMALL]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tokenizer"]["prefix"] == ["<s>"]
    assert document["model"]["located_by"] == "table"
    assert [layer["position"] for layer in document["layers"]] == ["rotary"] * 8
    assert all(check["passed"] for check in document["checks"].values())
    assert document["content"] is None
    assert document["error"] is None


def test_attention_implementation_can_be_chosen(capsys: Capture) -> None:
    for name in ("eager", "sdpa"):
        assert main(["inspect", "embedded:llama", "--attention", name, "--json", *SMALL]) == 0
        model = json.loads(capsys.readouterr().out)["model"]
        assert model["attention_implementation"] == name
    assert main(["inspect", "embedded:bloom", "--attention", "sdpa", *SMALL]) == 2
    assert "with attention implementation 'sdpa'" in capsys.readouterr().err
    assert main(["inspect", "embedded:llama", "--attention", "flash", *SMALL]) == 2


def test_short_documents_are_joined_only_if_asked(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "Too short."}\n' * 40)
    words = ["inspect", "embedded:llama", str(tmp_path / "a.jsonl"), "--windows", "2", *SMALL]
    assert main(words) == 2
    assert main([*words, "--pack", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["content"]["windows"] == 2


def test_content_of_a_text_as_table_json_and_figure(capsys: Capture, tmp_path: Path) -> None:
    words = ["inspect", "embedded:bloom", "embedded", "--windows", "3", *SMALL]
    figure = tmp_path / "content.svg"
    assert main([*words, "--figure", str(figure)]) == 0
    printed = capsys.readouterr().out
    assert "Attention sinks: none." in printed
    rows = [line.split() for line in printed.splitlines()]
    table = {(r[0], r[1]): r[2:] for r in rows if len(r) == 7 and r[0].isdigit()}
    assert len(table) == 64
    assert figure.stat().st_size > 1000
    assert main([*words, "--json", str(tmp_path / "i.json")]) == 0
    document = json.loads((tmp_path / "i.json").read_text())
    assert document["sinks"]["found"] == []
    content = document["content"]
    names = ["d", "diagonal_std", "lower_std", "separation", "explained"]
    for k, name in enumerate(names):
        values = np.array(content[name])
        assert values.shape == (8, 8)
        assert float(table["3", "5"][k]) == pytest.approx(values[2, 4], abs=5.1e-4)


def test_figure_needs_a_text_and_outputs_are_not_replaced(capsys: Capture, tmp_path: Path) -> None:
    assert main(["inspect", "embedded:bloom", "--figure", str(tmp_path / "a.png")]) == 2
    assert "needs a TEXT" in capsys.readouterr().err
    (tmp_path / "a.json").write_text("{}")
    assert main(["inspect", "embedded:bloom", "--json", str(tmp_path / "a.json")]) == 2
    assert "exists" in capsys.readouterr().err


def leak_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every token see every other."""
    monkeypatch.setattr(modeling_llama, "create_causal_mask", lambda **options: None)
    monkeypatch.setattr(
        modeling_llama.LlamaAttention,
        "is_causal",
        property(lambda self: False, lambda self, value: None),
        raising=False,
    )


def watch_the_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the MLP for the attention update."""
    monkeypatch.setattr(
        sites, "architecture_of", lambda config: replace(architecture_of(config), update="mlp")
    )


def stub_the_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the attention by something without softmax."""
    monkeypatch.setattr(
        modeling_llama.LlamaAttention,
        "forward",
        lambda self, hidden_states, **options: (0.5 * hidden_states, None),
    )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (leak_the_future, "causality"),
        (watch_the_wrong_place, "x + a is not what the model adds up"),
        (stub_the_attention, "no softmax attention runs in layer 1"),
    ],
)
def test_broken_models_exit_3_and_nothing_is_written(
    fault: Callable[[pytest.MonkeyPatch], None],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    tmp_path: Path,
) -> None:
    fault(monkeypatch)
    assert main(["inspect", "embedded:llama", *SMALL]) == 3
    captured = capsys.readouterr()
    assert message in captured.err.splitlines()[-1]
    # The checks that ran are shown all the same.
    assert "finite" in captured.out
    out = tmp_path / "m"
    words = ["embedded:llama", "embedded", "--out", str(out), "-q", "--windows", "2", *SMALL]
    for command in ("measure", "run"):
        assert main([command, *words]) == 3
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert not out.exists()


def test_a_failed_check_is_in_the_table_and_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    leak_the_future(monkeypatch)
    assert main(["inspect", "embedded:llama", *SMALL]) == 3
    assert any(
        "causality" in line and "FAILED" in line for line in capsys.readouterr().out.splitlines()
    )
    assert main(["inspect", "embedded:llama", "--json", *SMALL]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["checks"]["causality"]["passed"] is False
    assert "causality" in document["error"]
    assert document["layers"] == []
