"""posbias measure and posbias run: what they write, and every bad input in one line."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from posbias.cli import main
from posbias.run import is_run_directory

torch.set_num_threads(1)

SMALL = ["--length", "24", "--windows", "3"]
VARIANTS = [
    "attention-only",
    "residual",
    "residual+content",
    "residual+measured",
    "energy-rollout",
    "fixed-half",
    "uniform",
]


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    assert main(["run", "--out", str(out), "--quiet", *SMALL]) == 0
    return out


def read_csv(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()]


def failed(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """Run a command that must fail with one line on stderr, and return that line."""
    capsys.readouterr()
    assert main(words) == code
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("posbias: error: ")]
    assert captured.err.splitlines()[-1:] == lines, captured.err
    assert captured.out == ""
    return lines[0]


def test_run_writes_everything(run_directory: Path) -> None:
    assert sorted(p.name for p in run_directory.iterdir()) == [
        "comparison.csv",
        "comparison.json",
        "figure.png",
        "figure.svg",
        "measurement",
        "profiles.csv",
        "profiles.json",
    ]
    assert sorted(p.name for p in (run_directory / "measurement").iterdir()) == [
        "arrays.safetensors",
        "manifest.json",
    ]


def test_profiles_are_distributions_of_every_variant(run_directory: Path) -> None:
    rows = read_csv(run_directory / "profiles.csv")
    assert rows[0] == ["position", "measured", *VARIANTS]
    table = np.array(rows[1:], dtype=float)
    assert np.array_equal(table[:, 0], np.arange(24))
    assert np.allclose(table[:, 1:].sum(axis=0), 1.0, atol=1e-9)


def test_csv_and_json_hold_the_same_numbers(run_directory: Path) -> None:
    rows = read_csv(run_directory / "profiles.csv")
    document = json.loads((run_directory / "profiles.json").read_text())
    for k, profile in enumerate(document["profiles"]):
        assert profile["name"] == rows[0][k + 1]
        assert profile["mass"] == [float(row[k + 1]) for row in rows[1:]]


def test_comparison_is_that_of_the_written_profiles(run_directory: Path) -> None:
    rows = read_csv(run_directory / "profiles.csv")
    table = np.array(rows[1:], dtype=float)
    document = json.loads((run_directory / "comparison.json").read_text())
    assert [row["variant"] for row in document["rows"]] == VARIANTS
    for k, row in enumerate(document["rows"]):
        gap = np.cumsum(table[:, 2 + k]) - np.cumsum(table[:, 1])
        assert row["w1"] == pytest.approx(np.abs(gap[:-1]).sum() / 23, abs=1e-12)
        assert row["primacy"] == pytest.approx(table[:3, 2 + k].sum(), abs=1e-12)


def test_table_goes_to_stdout_and_progress_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--out", str(tmp_path / "a"), *SMALL]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    names = ["measured", *VARIANTS[:4], "fixed 1/2", "uniform"]
    places = [next(k for k, line in enumerate(lines) if line.startswith(f"  {n} ")) for n in names]
    assert places == sorted(places)
    assert "W1" in captured.out
    assert "windows" in captured.err
    assert "\x1b" not in captured.out


def test_json_and_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--out", str(tmp_path / "a"), "--json", "-q", *SMALL]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.err == ""
    assert document["model"] == "embedded:bloom"
    assert document["windows"] == 3
    assert [row["variant"] for row in document["rows"]] == VARIANTS


def test_two_runs_write_the_same_profiles_and_figures(run_directory: Path, tmp_path: Path) -> None:
    assert main(["run", "--out", str(tmp_path / "a"), "-q", *SMALL]) == 0
    for name in ("profiles.csv", "comparison.csv", "comparison.json", "figure.png", "figure.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (run_directory / name).read_bytes(), name


def test_later_steps_start_from_the_files(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measurement = str(run_directory / "measurement")
    capsys.readouterr()
    assert main(["predict", measurement, "--csv", str(tmp_path / "p.csv")]) == 0
    ours = read_csv(tmp_path / "p.csv")
    theirs = read_csv(run_directory / "profiles.csv")
    assert [row[1:] for row in ours] == [row[2:] for row in theirs]
    assert main(["compare", measurement, str(tmp_path / "p.csv"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows == json.loads((run_directory / "comparison.json").read_text())["rows"]


def test_a_run_directory_stands_for_its_measurement(
    run_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for path in (run_directory, run_directory / "measurement"):
        capsys.readouterr()
        assert main(["predict", str(path), "--csv", "-"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_the_estimator_of_a_run_is_not_forgotten(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    words = ["run", "--out", out, "--quiet", "--estimator", "frobenius", *SMALL]
    assert main(words) == 0
    choices = []
    for name in (out, str(run_directory)):
        document = json.loads((Path(name) / "comparison.json").read_text())
        capsys.readouterr()
        assert main(["compare", name, name, "--json"]) == 0
        again = json.loads(capsys.readouterr().out)
        assert again == document
        choices.append(again["estimator"])
    assert choices == ["frobenius", "auto"]
    shown = []
    for words in ([out], [out, "--estimator", "paper"], [out, "--estimator", "norm"]):
        assert main(["compare", out, *words, "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    own, paper, norm = shown
    assert norm == paper
    assert (own["estimator"], paper["estimator"]) == ("frobenius", "paper")
    ladders = [{row["variant"]: row["w1"] for row in found["rows"]} for found in (own, paper)]
    assert ladders[0]["residual"] != ladders[1]["residual"]
    assert ladders[0]["paper"] == ladders[1]["residual+measured"]
    assert main(["predict", out, "--csv", "-"]) == 0
    ours = [line.split(",")[1:] for line in capsys.readouterr().out.splitlines()]
    assert ours == [row[2:] for row in read_csv(Path(out) / "profiles.csv")]
    assert main(["report", out, "--out", "-"]) == 0
    assert "Estimator: frobenius" in capsys.readouterr().out
    both = ["report", out, str(run_directory), "--out", "-"]
    assert "choose one with --estimator" in failed(both, capsys)
    assert main([*both, "--estimator", "norm"]) == 0
    assert "Estimator: paper" in capsys.readouterr().out


def test_variants_that_end_at_the_measured_length_are_named(
    run_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for length, expected in (("100", 1), ("24", 0), ("10", 0)):
        capsys.readouterr()
        words = ["predict", str(run_directory), "--length", length, "--csv", "-"]
        assert main(words) == 0
        captured = capsys.readouterr()
        assert captured.err.count("\n") == expected
        if expected:
            assert "more than the 24 that were measured" in captured.err
            assert "residual+measured, energy-rollout, fixed-half need" in captured.err
            assert "residual+measured" not in captured.out


def test_short_documents_are_joined_with_pack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps({"text": f"Short document number {k}."}) for k in range(40)]
    (tmp_path / "short.jsonl").write_text("\n".join(lines))
    words = [
        "measure",
        "embedded:bloom",
        str(tmp_path / "short.jsonl"),
        "--out",
        str(tmp_path / "m"),
    ]
    assert "--pack" in failed([*words, *SMALL], capsys)
    assert main([*words, *SMALL, "--pack", "--quiet"]) == 0
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    assert manifest["windows"]["packed"] is True


def test_existing_output_is_refused_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("posbias.measure.runner"), "measure", None)
    (tmp_path / "keep").write_text("mine")
    for command in (["run"], ["measure", "embedded:bloom", "embedded"]):
        line = failed([*command, "--out", str(tmp_path), *SMALL], capsys)
        assert "exists" in line
        assert "--overwrite" in line
    assert (tmp_path / "keep").read_text() == "mine"


def test_overwrite_replaces_a_run_and_nothing_else(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a"
    assert main(["run", "--out", str(out), "-q", *SMALL]) == 0
    again = ["run", "--out", str(out), "-q", "--overwrite", "--seed", "5", *SMALL]
    assert main(again) == 0
    assert (out / "profiles.csv").read_text() != (run_directory / "profiles.csv").read_text()
    (out / "thesis.txt").write_text("mine")
    line = failed(again, capsys)
    assert f"{out} also holds thesis.txt, which posbias did not write" in line
    assert (out / "thesis.txt").read_text() == "mine"
    (out / "thesis.txt").unlink()
    (out / "report.html").write_text("<html>a page of my own</html>")
    assert "also holds report.html" in failed(again, capsys)
    assert main(["report", str(out), "--overwrite"]) == 0
    (out / "measurement" / "notes.txt").write_text("mine")
    assert "also holds measurement/notes.txt" in failed(again, capsys)
    (out / "measurement" / "notes.txt").unlink()
    assert main(again) == 0
    assert not (out / "report.html").exists()


@pytest.mark.parametrize("command", [["run"], ["measure", "embedded:bloom", "embedded"]])
@pytest.mark.parametrize("below", ["x", "deep/x"])
def test_an_output_below_a_file_is_refused_before_measuring(
    command: list[str],
    below: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.import_module("posbias.measure.runner"), "measure", None)
    (tmp_path / "file").write_text("mine")
    for words in ([], ["--overwrite"]):
        line = failed([*command, "--out", str(tmp_path / "file" / below), *SMALL, *words], capsys)
        assert f"its parent {tmp_path / 'file'} is a file" in line


def test_a_foreign_file_in_a_measurement_is_named_before_measuring(
    run_directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "m"
    shutil.copytree(run_directory / "measurement", out)
    (out / "mynotes.txt").write_text("mine")
    monkeypatch.setattr(importlib.import_module("posbias.measure.runner"), "measure", None)
    words = ["measure", "embedded:bloom", "embedded", "--out", str(out), "--overwrite", *SMALL]
    assert "also holds mynotes.txt" in failed(words, capsys)


def test_overwrite_of_foreign_folders_is_refused_before_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("posbias.measure.runner"), "measure", None)
    (tmp_path / "keep").write_text("mine")
    for command in (["run"], ["measure", "embedded:bloom", "embedded"]):
        words = [*command, "--out", str(tmp_path), "--overwrite", *SMALL]
        assert "not replaced" in failed(words, capsys)
    assert (tmp_path / "keep").read_text() == "mine"


@pytest.mark.parametrize("command", [["run"], ["measure", "embedded:bloom", "embedded"]])
def test_without_torch_the_message_says_what_to_install(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    line = failed([*command, "--out", str(tmp_path / "out"), *SMALL], capsys)
    assert "pip install 'posbias[models]'" in line


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--length", "1"], "length"),
        (["--length", "100000"], "100000"),
        (["--windows", "0"], "windows"),
        (["--batch-size", "0"], "batch_size"),
        (["--seed", "-1"], "seed"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_numbers_out_of_range(
    options: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["measure", "embedded:bloom", "embedded", "--out", str(out), *SMALL, *options]
    assert part in failed(words, capsys)
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("short.txt", b"too short", "short.txt"),
        ("empty.txt", b"", "empty.txt"),
        ("binary.txt", bytes(range(256)) * 40, "binary.txt"),
        ("latin.txt", "déjà vu ".encode("latin-1") * 400, "latin.txt"),
        ("lines.jsonl", b'{"body": "words"}\n', "text"),
        ("broken.jsonl", b'{"text": \n', "broken.jsonl"),
        (None, None, "missing.txt"),
    ],
)
def test_bad_text(
    name: str | None,
    content: bytes | None,
    part: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / (name or "missing.txt")
    if content is not None:
        path.write_bytes(content)
    out = tmp_path / "out"
    words = ["measure", "embedded:bloom", str(path), "--out", str(out), *SMALL]
    assert part in failed(words, capsys)
    assert not out.exists()


@pytest.mark.parametrize(
    "model", ["./no-such-folder", "embedded:gpt", "package:no_such_package", "a b c"]
)
def test_unknown_model(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["measure", model, "embedded", "--out", str(tmp_path / "out"), *SMALL]
    assert model.rsplit(":", maxsplit=1)[-1] in failed(words, capsys)


def test_encoder_only_model_exits_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import BertConfig, BertModel

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=20, intermediate_size=8, **small)
    BertModel(config).save_pretrained(tmp_path / "bert")
    words = ["measure", str(tmp_path / "bert"), "embedded", "--out", str(tmp_path / "o"), *SMALL]
    assert "bert" in failed(words, capsys, code=3)


def test_overflow_in_half_precision_names_the_dtype_and_exits_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from posbias.models.loading import load_model

    loaded = load_model("embedded:bloom")
    with torch.no_grad():
        for block in loaded.model.transformer.h:
            block.self_attention.dense.weight.mul_(1e6)
    loaded.model.save_pretrained(tmp_path / "loud")
    loaded.tokenizer.save_pretrained(tmp_path / "loud")
    words = ["measure", str(tmp_path / "loud"), "embedded", "--out", str(tmp_path / "o"), *SMALL]
    line = failed([*words, "--dtype", "float16"], capsys, code=3)
    assert "float16" in line
    assert not (tmp_path / "o").exists()


def test_tampered_and_truncated_measurements(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, spoil in {
        "arrays.safetensors": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        "manifest.json": lambda data: data[: len(data) // 2],
    }.items():
        copy = tmp_path / name.split(".")[0]
        copy.mkdir()
        for file in (run_directory / "measurement").iterdir():
            data = file.read_bytes()
            (copy / file.name).write_bytes(spoil(data) if file.name == name else data)
        for words in (["predict", str(copy)], ["compare", str(copy), str(run_directory)]):
            assert str(copy) in failed(words, capsys)


def test_influence_methods_are_measured_and_the_first_leads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "m"
    words = ["measure", "embedded:llama", "embedded", "--out", str(out), "-q"]
    words += ["--length", "8", "--windows", "2", "--influence", "occlusion"]
    assert main([*words, "--influence", "gradient-input"]) == 0
    from posbias.measurement import Measurement

    measurement = Measurement.open(out)
    assert measurement.influence_methods == ("occlusion", "gradient-input")
    assert measurement.influence().quantity == "occlusion influence"
    capsys.readouterr()
    assert main([*words, "--overwrite", "--influence", "none"]) == 2
    assert "none only by itself" in capsys.readouterr().err


def test_names_of_influence_methods_are_those_of_the_library() -> None:
    from posbias.cli._measuring import InfluenceName
    from posbias.measure.options import INFLUENCE_METHODS

    assert [name.value for name in InfluenceName] == [*INFLUENCE_METHODS, "none"]


def test_a_run_of_a_rotary_model_predicts_from_logits_by_lag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "embedded:llama", "--out", str(tmp_path / "a"), "-q", *SMALL]) == 0
    rows = read_csv(tmp_path / "a" / "comparison.csv")
    names = [row[0] for row in rows[1:] if row[0] != "measured"]
    assert names == [*VARIANTS[:3], "residual+lag", *VARIANTS[3:]]
    assert "residual+lag" in capsys.readouterr().out


def test_a_run_needs_measured_influence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--out", str(tmp_path / "o"), "--influence", "none", *SMALL]
    assert "compares with the measured influence" in failed(words, capsys)


def test_overwriting_a_run_keeps_what_is_not_its_own(run_directory: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run_directory, copied)
    assert is_run_directory(copied)
    (copied / "measurement" / "notes.txt").write_text("mine")
    assert not is_run_directory(copied)
