"""Loading: every kind of source gives the right weights; every failure is one clear line."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import (
    AutoConfig,
    BertConfig,
    BloomConfig,
    FalconConfig,
    Gemma3Config,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MptConfig,
    OPTConfig,
    PreTrainedTokenizerFast,
    T5Config,
    ViTConfig,
    modeling_gguf_pytorch_utils,
)
from transformers.utils import logging as transformers_logging

from posbias.errors import ModelError, PosbiasError, UnsupportedModelError
from posbias.models import loading
from posbias.models.hub import is_hub_reachable
from posbias.models.loading import (
    DTYPES,
    LoadedModel,
    embedded_models,
    load_model,
    maximum_length,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def make_tokenizer(*, has_bos: bool) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per byte."""
    symbols = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(BPE({symbol: index for index, symbol in enumerate(symbols)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if has_bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def make_network(**changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
        **changes,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def network() -> LlamaForCausalLM:
    return make_network()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, network: LlamaForCausalLM) -> Path:
    """A folder with a tiny model and its tokenizer; not to be changed."""
    folder = tmp_path_factory.mktemp("saved") / "tiny"
    network.save_pretrained(folder)
    make_tokenizer(has_bos=True).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of the model to damage."""
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


def refusal(model: Any, kind: type[PosbiasError] = ModelError, **options: Any) -> str:
    """Return the one-line message with which a model is refused."""
    with pytest.raises(kind) as caught:
        load_model(model, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- folders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_folder_is_loaded_in_the_wanted_format(
    saved: Path, network: LlamaForCausalLM, dtype: str
) -> None:
    loaded = load_model(saved, dtype=dtype, device="cpu")
    assert (loaded.id, loaded.revision, loaded.source_kind) == (str(saved), None, "directory")
    expected = getattr(torch, dtype)
    original = dict(network.named_parameters())
    for name, weights in loaded.model.named_parameters():
        assert weights.dtype == expected
        assert torch.equal(weights, original[name].to(expected))
    assert not loaded.model.training
    assert loaded.tokenizer("hi")["input_ids"][0] == 0


def test_stored_half_precision_is_not_what_is_loaded(tmp_path: Path) -> None:
    make_network().to(torch.bfloat16).save_pretrained(tmp_path)
    make_tokenizer(has_bos=False).save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), device="cpu")
    assert loaded.model.dtype == torch.float32
    assert loaded.tokenizer("hi")["input_ids"][0] != 0


def test_a_dtype_of_torch_is_taken(saved: Path) -> None:
    assert load_model(saved, dtype=torch.float64, device="cpu").model.dtype == torch.float64


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_attention_implementation_is_passed_on(saved: Path, implementation: str) -> None:
    loaded = load_model(saved, attn_implementation=implementation, device="cpu")
    assert loaded.model.config._attn_implementation == implementation


def test_tied_weights_are_not_missing(tmp_path: Path) -> None:
    make_network(tie_word_embeddings=True).save_pretrained(tmp_path)
    make_tokenizer(has_bos=True).save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    model = load_model(tmp_path, device="cpu").model
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_the_device_is_the_gpu_if_there_is_one(saved: Path) -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert load_model(saved).model.device.type == expected


@pytest.mark.parametrize("name", embedded_models())
def test_embedded_models_load(name: str) -> None:
    loaded = load_model(f"embedded:{name}", device="cpu")
    assert (loaded.id, loaded.source_kind) == (f"embedded:{name}", "embedded")
    assert loaded.model.dtype == torch.float32


def test_the_default_model_is_embedded() -> None:
    assert load_model(device="cpu").id == "embedded:bloom"


# --- silence -------------------------------------------------------------------------------------


def switch_bars(has_bars: bool, has_downloads: bool) -> None:
    """Set the bars of transformers, then those of downloads, which the first call sets too."""
    if has_bars:
        transformers_logging.enable_progress_bar()
    else:
        transformers_logging.disable_progress_bar()
    if has_downloads:
        enable_progress_bars()
    else:
        disable_progress_bars()


@pytest.mark.parametrize("has_bars", [True, False])
@pytest.mark.parametrize("has_downloads", [True, False])
def test_loading_prints_nothing_and_leaves_no_setting_behind(
    saved: Path,
    gguf_file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    has_bars: bool,
    has_downloads: bool,
) -> None:
    hub = logging.getLogger("huggingface_hub")
    switch_bars(has_bars, has_downloads)

    def settings() -> tuple[object, ...]:
        return (
            transformers_logging.get_verbosity(),
            transformers_logging.is_progress_bar_enabled(),
            are_progress_bars_disabled(),
            modeling_gguf_pytorch_utils.tqdm,
            hub.level,
            list(warnings.filters),
            torch.get_default_dtype(),
        )

    before = settings()
    load_model(saved, device="cpu")
    load_model(gguf_file, device="cpu")
    (tmp_path / "config.json").write_text("{")
    refusal(tmp_path)
    after = settings()
    switch_bars(True, True)
    assert after == before
    assert capfd.readouterr() == ("", "")


# --- damaged folders -----------------------------------------------------------------------------


def edit_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        file = folder / "model.safetensors"
        weights = load_file(file)
        change(weights)
        save_file(weights, file, {"format": "pt"})

    return damage


def edit_config(**changes: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return damage


def truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


LAYER = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (truncate, "cannot be loaded: SafetensorError.*download or save the model again"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"<html>" * 99),
            "weights of .* cannot be loaded: SafetensorError",
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "no file named model.safetensors"),
        (edit_weights(lambda weights: weights.pop(LAYER)), f"1 tensors are missing .* {LAYER}"),
        (
            edit_weights(lambda weights: weights.update({LAYER: torch.zeros(3, 5)})),
            rf"{LAYER} has shape \(3, 5\), \(24, 16\) is required",
        ),
        (edit_config(num_hidden_layers=3), "9 tensors are missing"),
        (edit_config(model_type="unheard-of"), "configuration of .*`unheard-of`"),
        (lambda folder: (folder / "config.json").write_text("{"), "not a valid JSON file"),
        (lambda folder: (folder / "config.json").write_text("{}"), "model_type"),
        (lambda folder: (folder / "config.json").unlink(), "neither config.json nor a .gguf"),
        (
            lambda folder: [file.unlink() for file in folder.glob("tokenizer*")],
            "has no tokenizer: none is in the folder",
        ),
        (
            lambda folder: (folder / "tokenizer.json").write_text("{"),
            "no tokenizer that can be loaded: JSONDecodeError",
        ),
        (
            lambda folder: (folder / "tokenizer.json").unlink(),
            "no tokenizer that can be loaded: ValueError",
        ),
    ],
)
def test_a_damaged_model_is_refused(
    folder: Path, damage: Callable[[Path], object], expected: str
) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=expected) as caught:
        load_model(folder, device="cpu")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (BertConfig(), r"is an encoder \(bert\)"),
        (T5Config(), r"is a sequence-to-sequence model \(t5\)"),
        (ViTConfig(), "is a vit model"),
        (LlamaConfig(is_causal=False), r"is an encoder \(llama\)"),
        (LlamaConfig(quantization_config={"quant_method": "gptq", "bits": 4}), "by gptq"),
        (LlamaConfig(quantization_config={"load_in_8bit": True}), "quantised by an unnamed method"),
    ],
)
def test_a_model_that_cannot_be_measured_is_refused_before_its_weights_are_read(
    folder: Path, config: Any, expected: str
) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    with pytest.raises(UnsupportedModelError, match=expected) as caught:
        load_model(folder, device="cpu")
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


# --- names and options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("embedded:nothing", "there is no model embedded:nothing; available: embedded:bloom"),
        ("./nothing", "no such file or folder"),
        ("nothing.gguf", "no such file or folder"),
        ("some/deep/path", "no such file or folder"),
        (Path("nothing"), "no such file or folder"),
        ("not a name!", "names no model"),
        ("", "name of the model is empty"),
        ("package:", "names no Python package"),
        ("package:no-such-package", "Install it: pip install no-such-package"),
        ("package:json", "holds 0 files *.gguf"),
    ],
)
def test_a_name_that_means_nothing_is_refused(name: str | Path, expected: str) -> None:
    assert expected in refusal(name)


def test_a_file_of_a_model_is_not_a_model(saved: Path) -> None:
    assert "give the folder" in refusal(saved / "config.json")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"dtype": "int8"}, "one of float32, bfloat16, float16, float64 is required"),
        ({"dtype": None}, "one of float32"),
        ({"device": "toaster"}, "device is 'toaster', which torch does not know"),
        ({"revision": "main"}, "only hub models have one"),
        ({"gguf_file": "a.gguf"}, "holds no file a.gguf"),
        ({"attn_implementation": "magic"}, "magic"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(
    saved: Path, options: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(saved, **options)


def test_a_device_that_is_not_there_is_refused(saved: Path) -> None:
    assert "cannot be moved to" in refusal(saved, device="cuda:99")


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_a_missing_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = refusal("embedded:bloom")
    assert f"needs {library}, not installed here" in message
    assert "pip install 'posbias[models]'" in message


# --- objects -------------------------------------------------------------------------------------


def test_objects_are_used_as_they_are(network: LlamaForCausalLM) -> None:
    tokenizer = make_tokenizer(has_bos=True)
    loaded = load_model((network, tokenizer))
    assert loaded.model is network
    assert loaded.tokenizer is tokenizer
    assert (loaded.revision, loaded.source_kind) == (None, "object")
    assert load_model(loaded) is loaded


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"dtype": "float64"}, "is in float32, float64 was asked for"),
        ({"dtype": "int4"}, "one of float32"),
        ({"device": "meta"}, "is on cpu, meta was asked for"),
        ({"revision": "main"}, "revision 'main' was given, but the model is loaded already"),
        ({"gguf_file": "a.gguf"}, "gguf_file 'a.gguf' was given"),
        ({"attn_implementation": "eager"}, "attn_implementation 'eager' was given"),
    ],
)
def test_objects_are_not_changed_to_fit(
    network: LlamaForCausalLM, options: dict[str, Any], expected: str
) -> None:
    assert expected in refusal((network, make_tokenizer(has_bos=True)), **options)


def test_the_format_of_an_object_can_be_left_open() -> None:
    pair = (make_network().to(torch.float64), make_tokenizer(has_bos=True))
    assert load_model(pair, dtype=None).model.dtype == torch.float64


def test_an_object_in_training_mode_is_refused() -> None:
    pair = (make_network().train(), make_tokenizer(has_bos=True))
    assert "call model.eval()" in refusal(pair)


def test_an_object_that_is_an_encoder_is_refused() -> None:
    from transformers import BertModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertModel(BertConfig(vocab_size=258, intermediate_size=8, **sizes)).eval()
    message = refusal((model, make_tokenizer(has_bos=True)), UnsupportedModelError)
    assert "is an encoder (bert)" in message


def test_a_model_alone_or_other_things_are_refused(network: LlamaForCausalLM) -> None:
    assert "model is a LlamaForCausalLM; a name, a path, or a pair" in refusal(network)
    assert "pair of LlamaForCausalLM and NoneType" in refusal((network, None))
    assert "model is a int" in refusal(7)


# --- lengths -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LlamaConfig(max_position_embeddings=77), 77),
        (GPT2Config(n_positions=78), 78),
        (OPTConfig(max_position_embeddings=79), 79),
        (MptConfig(max_seq_len=80), 80),
        (BloomConfig(), None),
        (FalconConfig(alibi=True, max_position_embeddings=81), None),
        (FalconConfig(alibi=False, max_position_embeddings=82), 82),
        (Gemma3Config(text_config={"max_position_embeddings": 83}), 83),
    ],
    ids=lambda value: type(value).__name__,
)
def test_maximum_length(config: Any, expected: int | None) -> None:
    assert maximum_length(config) == expected


def test_maximum_length_of_models(network: LlamaForCausalLM) -> None:
    loaded = LoadedModel(network, make_tokenizer(has_bos=True), "tiny", None, "object")
    assert maximum_length(network) == maximum_length(loaded) == 64


# --- GGUF ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory, network: LlamaForCausalLM) -> Path:
    """The tiny model as a GGUF file, with a tokenizer of bytes and the pair "ab"."""
    gguf = pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    config = network.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    writer.add_token_list(["<s>", "</s>", *letters[:-1], "ab"])
    writer.add_token_types([3, 3, *[1] * 256])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weights in network.state_dict().items():
        writer.add_tensor(names.get_name(name, (".weight",)), weights.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_loaded(gguf_file: Path, network: LlamaForCausalLM) -> None:
    loaded = load_model(gguf_file, device="cpu")
    assert (loaded.id, loaded.source_kind) == (str(gguf_file), "gguf")
    assert loaded.model.dtype == torch.float32
    # q and k are stored in another order of rows; these are not.
    for name in ("model.embed_tokens.weight", "model.layers.1.self_attn.v_proj.weight"):
        assert torch.equal(loaded.model.state_dict()[name], network.state_dict()[name])
    assert len(loaded.tokenizer("hello ab", add_special_tokens=False)["input_ids"]) == 7


def test_a_folder_with_a_gguf_file_is_enough(gguf_file: Path) -> None:
    for options in ({}, {"gguf_file": gguf_file.name}):
        loaded = load_model(gguf_file.parent, device="cpu", **options)
        assert (loaded.id, loaded.source_kind) == (str(gguf_file.parent), "gguf")


@pytest.mark.parametrize("has_parts", [False, True])
def test_a_package_with_a_gguf_file(
    gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_parts: bool
) -> None:
    package = tmp_path / f"tiny_gguf_{has_parts}".lower()
    (package / "data").mkdir(parents=True)
    code = ""
    if has_parts:
        code = f"def assemble():\n    return {str(gguf_file)!r}\n"
    else:
        shutil.copy(gguf_file, package / "data" / "tiny.gguf")
    (package / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    name = "package:" + package.name.replace("_", "-")
    loaded = load_model(name, device="cpu")
    assert (loaded.id, loaded.source_kind) == (name, "gguf")


def test_a_package_that_cannot_give_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_gguf.py").write_text("def assemble():\n    raise ValueError('no sum')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "cannot give its file: no sum" in refusal("package:broken_gguf")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "begins with b''"),
        (b"<html>", "begins with b'<htm'"),
        (b"GGUF" + bytes(99), "configuration of .* cannot be read"),
    ],
)
def test_a_damaged_gguf_file_is_refused(tmp_path: Path, raw: bytes, expected: str) -> None:
    pytest.importorskip("gguf")
    path = tmp_path / "a.gguf"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=expected):
        load_model(path)


def test_a_truncated_gguf_file_is_refused(gguf_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_file.read_bytes()[:-4000])
    assert str(path) in refusal(path)


def test_several_gguf_files_in_a_folder_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert "several GGUF files (a.gguf, b.gguf); name one" in refusal(tmp_path)


def test_gguf_file_goes_with_a_folder_only(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    assert "is a file already" in refusal(tmp_path / "a.gguf", gguf_file="a.gguf")
    assert "which is not GGUF" in refusal("embedded:bloom", gguf_file="a.gguf")


@pytest.mark.parametrize("library", ["gguf", "accelerate", "sentencepiece"])
def test_libraries_for_gguf_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, library, None)
    message = refusal(tmp_path / "a.gguf")
    assert library in message
    assert "pip install 'posbias[gguf]'" in message


# --- the hub -------------------------------------------------------------------------------------


class Hub(BaseHTTPRequestHandler):
    """A hub with one model, owner/tiny, and a gated one, owner/gated."""

    folder: Path

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def do_HEAD(self) -> None:
        self.reply(*self.answer())

    def do_GET(self) -> None:
        code, headers, body = self.answer()
        self.reply(code, headers, body)
        self.wfile.write(body)

    def reply(self, code: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        path = self.path.split("?")[0].strip("/")
        is_api = path.startswith("api/models/")
        owner, name, *rest = [*path.removeprefix("api/models/").split("/"), "", ""]
        rest = [part for part in rest if part]
        file = self.folder / rest[-1] if rest and not is_api else None
        refused = self.refusal(owner, name, rest)
        if refused is not None:
            return refused
        if file is not None and file.is_file():
            body = file.read_bytes()
            tag = f'"{sha256(body).hexdigest()}"'
            return 200, {"X-Repo-Commit": COMMIT, "ETag": tag}, body
        if is_api and "tree" not in rest:
            body = json.dumps({"id": "owner/tiny", "sha": COMMIT, "siblings": []}).encode()
            return 200, {"Content-Type": "application/json"}, body
        return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""

    @staticmethod
    def refusal(owner: str, name: str, rest: list[str]) -> tuple[int, dict[str, str], bytes] | None:
        if not owner:
            return 200, {}, b""
        if (owner, name) == ("owner", "gated"):
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        if (owner, name) != ("owner", "tiny"):
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if len(rest) > 1 and rest[1] not in {"main", COMMIT}:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        return None


@pytest.fixture
def hub(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ThreadingHTTPServer]:
    """A hub on this machine, with an empty cache."""
    from huggingface_hub import constants

    handler = type("TinyHub", (Hub,), {"folder": saved})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # The client that transformers keeps was made for the real hub.
    monkeypatch.setattr("transformers.utils.hub._hf_api", None, raising=False)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_hub_model_is_loaded_with_its_commit_and_again_without_the_hub(
    hub: ThreadingHTTPServer, network: LlamaForCausalLM
) -> None:
    loaded = load_model("owner/tiny", device="cpu")
    assert (loaded.id, loaded.revision, loaded.source_kind) == ("owner/tiny", COMMIT, "hub")
    assert torch.equal(loaded.model.lm_head.weight, network.lm_head.weight)
    hub.shutdown()
    hub.server_close()
    for revision in (None, "main", COMMIT):
        again = load_model("owner/tiny", revision=revision, device="cpu")
        assert again.revision == COMMIT


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("owner/none", {}, "has no such model, or it is private"),
        ("owner/tiny", {"revision": "nope"}, "has no revision 'nope'"),
        ("owner/gated", {}, "is gated: accept its terms at"),
    ],
)
def test_what_the_hub_refuses_is_explained(
    hub: ThreadingHTTPServer, name: str, options: dict[str, Any], expected: str
) -> None:
    assert hub.server_port
    message = refusal(name, **options)
    assert expected in message
    assert name in message


def test_without_the_hub_what_was_tried_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    message = refusal("owner/none")
    assert capfd.readouterr() == ("", "")
    assert "no such folder or file here" in message
    assert f"not in the cache {tmp_path}" in message
    assert "http://127.0.0.1:9 cannot be reached" in message


def test_offline_mode_is_obeyed(hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    assert hub.server_port
    assert is_hub_reachable()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not is_hub_reachable()


def test_other_failures_of_the_hub_keep_their_reason(
    hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hub.server_port

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk\nis full")

    monkeypatch.setattr(AutoConfig, "from_pretrained", fail)
    assert refusal("owner/tiny").endswith("cannot be read: OSError: the disk is full")


def test_public_names() -> None:
    assert all(hasattr(loading, name) for name in loading.__all__)
