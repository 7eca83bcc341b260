"""Architecture specs: own YAML/JSON, the paper's published YAML, a Hugging Face config.json."""

from posbias.spec.files import load_spec, save_spec, spec_schema
from posbias.spec.native import parse_spec
from posbias.spec.slopes import alibi_slopes, textbook_slopes
from posbias.spec.spec import Spec

__all__ = [
    "Spec",
    "alibi_slopes",
    "load_spec",
    "parse_spec",
    "save_spec",
    "spec_schema",
    "textbook_slopes",
]
