"""The training scripts: interrupted runs, and a clean split of the text."""

import dataclasses
import importlib.util
import itertools
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TRAINING = Path(__file__).resolve().parents[2] / "training"


def load(name):
    """Import a script of the folder `training`, which is no package."""
    spec = importlib.util.spec_from_file_location(
        f"posbias_training_{name}", TRAINING / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


train = load("train")
prepare_text = load("prepare_text")

TEXT = "In the beginning was the word, and the word was small; " * 40
TINY = {
    "vocabulary": 280,
    "layers": 2,
    "heads": 4,
    "hidden": 32,
    "intermediate": 48,
    "context": 16,
    "batch": 2,
    "tokens": 4 * 32,
    "warmup_steps": 2,
}


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small are fastest on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(architecture):
    return train.Settings(name=architecture, architecture=architecture, **TINY)


@pytest.fixture(params=["bloom", "llama"])
def settings(request):
    return tiny(request.param)


@pytest.fixture
def tokenizer(settings):
    return train.train_tokenizer([TEXT], settings)


@pytest.fixture
def stream(settings, tokenizer):
    return train.token_stream([TEXT, TEXT[100:]], tokenizer)


def same_weights(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def test_interrupted_run_ends_with_the_same_bits(settings, stream, tmp_path):
    stop = train.StopRequest()
    whole, run = train.train(settings, stream, tmp_path / "whole", stop)
    assert run.step == run.schedule.end == 4

    _, partial = train.train(settings, stream, tmp_path / "parts", stop, stop_at_step=2)
    assert partial.step == 2
    resumed, again = train.train(settings, stream, tmp_path / "parts", stop)

    assert again.step == 4
    assert again.starts == 2
    assert again.losses == run.losses
    assert same_weights(whole, resumed)
    assert not same_weights(whole, train.build_model(settings))


def test_a_signal_stops_after_the_step_and_saves(settings, stream, tmp_path):
    stop = train.StopRequest()
    stop()
    _, run = train.train(settings, stream, tmp_path, stop)
    assert run.step == 0
    assert (tmp_path / "checkpoint.pt").exists()


def test_finish_file_starts_the_decay(stream, settings, tmp_path):
    long = dataclasses.replace(settings, tokens=1000 * 32)
    stop = train.StopRequest()
    train.train(long, stream, tmp_path, stop, stop_at_step=8)
    (tmp_path / "finish").touch()
    _, run = train.train(long, stream, tmp_path, stop)
    assert run.schedule == train.Schedule(decay_start=8, end=10, ended_early=True)
    assert run.step == 10


def test_batches_depend_on_seed_and_step_only(stream, settings):
    first = train.get_batch(stream, 7, settings)
    assert torch.equal(first[0], train.get_batch(stream, 7, settings)[0])
    assert not torch.equal(first[0], train.get_batch(stream, 8, settings)[0])
    inputs, targets = first
    assert inputs.shape == targets.shape == (2, 16)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert bool((inputs[:, 0] == train.BOS_ID).all()) == settings.uses_bos


def test_an_epoch_shows_every_window_once(stream, settings):
    per_epoch = (len(stream) - 1) // settings.context - 1
    steps = per_epoch // settings.batch
    ordered = torch.arange(len(stream))  # a stream whose tokens are their own positions
    seen = torch.cat([train.get_batch(ordered, i, settings)[1].flatten() for i in range(steps)])
    assert len(set(seen.tolist())) == len(seen) == steps * settings.batch * settings.context


def test_learning_rate_warms_up_stays_and_decays(settings):
    schedule = train.Schedule(decay_start=80, end=100)
    rates = [train.learning_rate(i, schedule, settings) for i in range(100)]
    assert rates[0] == settings.peak_lr / 2
    assert set(rates[1:80]) == {settings.peak_lr}
    assert all(a > b > 0 for a, b in itertools.pairwise(rates[79:]))


def test_fused_attention_equals_the_library(stream):
    settings = tiny("bloom")
    batch = train.get_batch(stream.clamp(max=TINY["vocabulary"] - 1), 0, settings)
    plain, fast = train.build_model(settings), train.build_model(settings)
    train.make_faster(fast)
    for model in (plain, fast):
        train.next_token_loss(model, *batch).backward()
    for a, b in zip(plain.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_export_loads_again(settings, stream, tokenizer, tmp_path, caplog):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("val_kjv.txt", "val_plays.txt"):
        (corpus / name).write_text(TEXT[3:])
    share = {"ngrams_shared_share": 0.5}
    report = {
        "train_documents": 2,
        "train_bytes": 1,
        "train_bytes_kjv": 1,
        "held_out_books": ["A"],
        "held_out_plays": ["B"],
        "excluded_plays": ["C"],
        "val_kjv_overlap": share,
        "val_plays_overlap": share,
    }
    (corpus / "report.json").write_text(json.dumps(report))
    model, run = train.train(settings, stream, tmp_path / "run", train.StopRequest())
    target = tmp_path / "model"
    card = train.export(model, tokenizer, stream, run, settings, corpus, target)

    assert card == json.loads((target / "card.json").read_text())
    assert card["complete"]
    assert card["tokens_seen"] == 4 * 32
    assert abs(card["float16_rounding_changes_kjv_loss_by"]) < 0.005
    caplog.clear()
    loaded = transformers.AutoTokenizer.from_pretrained(target)
    again = transformers.AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    assert not caplog.records
    assert type(again).__name__ == card["model_class"]
    ids = loaded("the word").input_ids
    assert (ids[0] == train.BOS_ID) == settings.uses_bos
    assert loaded.decode(ids, skip_special_tokens=True) == "the word"


VERSES = """\
Ge1:1 In the beginning God created the heaven and the earth.
Ge1:2 And the earth was without form, and void.
Ge2:1 Thus the heavens and the earth were finished.
Ruth1:1 Now it came to pass in the days when the judges ruled.
Ruth1:2 And the name of the man was Elimelech.
1Jn1:1 That which was from the beginning.
"""


def write_plays(folder):
    plays = {
        "the-tempest": "# The Tempest\n\n**Master**  \nBoatswain\\!\n\n_Exit_\n",
        "hamlet": "# Hamlet\n\n## ACT I\n\n**BERNARDO**  \nWho's there?  \nSay.\n",
        "edward-iii": "# Edward III\n\n**ARTOIS**  \nNot of this edition.\n",
    }
    for stem, text in plays.items():
        path = folder / "some" / f"{stem}.md"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)


def test_held_out_text_shares_no_line_with_training_text(tmp_path):
    write_plays(tmp_path / "plays")
    report = prepare_text.prepare(
        VERSES, tmp_path / "plays", tmp_path / "corpus", tmp_path / "shipped"
    )
    texts = [path.read_text() for path in sorted((tmp_path / "corpus" / "train").glob("*.txt"))]
    training_lines = {line for text in texts for line in text.splitlines() if line}
    sample = (tmp_path / "shipped" / "sample.txt").read_text()
    plays = (tmp_path / "corpus" / "val_plays.txt").read_text()

    assert not training_lines & set((sample + plays).splitlines())
    assert sample == (
        "Ruth\n\nNow it came to pass in the days when the judges ruled. "
        "And the name of the man was Elimelech.\n"
    )
    assert plays == "The Tempest\n\nMaster\nBoatswain!\n\nExit\n"
    assert "Who's there?\nSay.\n" in texts[-1]
    assert not any("Not of this edition" in text for text in texts)
    assert report["val_kjv_overlap"]["lines_shared"] == 0
    assert report["val_kjv_sha256"] in (tmp_path / "shipped" / "PROVENANCE.md").read_text()


def test_overlap_counts_shared_runs_of_words():
    measured = prepare_text.overlap("A b c d e", ["x a B, c; d y"], n=3)
    assert measured["ngrams"] == 3
    assert measured["ngrams_shared"] == 2


def test_a_line_that_is_no_verse_is_refused():
    with pytest.raises(ValueError, match="not a verse"):
        prepare_text.parse_bible("no label here")
