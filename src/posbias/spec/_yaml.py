"""Reading YAML strictly: version 1.2 numbers, tabs between tokens, no repeated keys."""

from __future__ import annotations

import re
from typing import Any

import yaml

from posbias.errors import SpecError

__all__ = ["dump_yaml", "parse_yaml"]

# YAML 1.2 reads 1e-5 as a number; YAML 1.1, PyYAML's version, reads it as text.
_FLOAT = re.compile(
    r"""[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?
     |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)""",
    re.X,
)


def parse_yaml(text: str, name: str) -> Any:
    """Parse one YAML (or JSON) document; `name` is used in messages.

    Tabs are allowed as white space between tokens, as YAML 1.2 does, and refused as indentation.

    Raises
    ------
    SpecError
        If the text is not YAML or a mapping repeats a key.
    """
    try:
        return yaml.load(text, Loader=_loader())
    except yaml.YAMLError as error:
        raise SpecError(f"{name} is not valid YAML: {_one_line(error)}") from error


def dump_yaml(document: Any) -> str:
    """Return a document as YAML; numbers keep all their digits."""
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return text


def _loader() -> type[Any]:
    """Return a loader class on libyaml, which knows tabs between tokens."""
    base: Any = getattr(yaml, "CSafeLoader", None)
    if base is None:
        raise SpecError(
            "PyYAML was built without libyaml, so YAML files cannot be read; install PyYAML from a "
            "wheel (pip install --force-reinstall pyyaml) or give the spec as JSON"
        )

    class Loader(base):  # type: ignore[misc]
        """YAML 1.2 numbers, no repeated keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise yaml.YAMLError(f"key {key.value!r} is repeated in line {line}")
                seen.add(key.value)
            mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return mapping

    Loader.yaml_implicit_resolvers = {
        first: [(tag, rule) for tag, rule in rules if tag != "tag:yaml.org,2002:float"]
        for first, rules in base.yaml_implicit_resolvers.items()
    }
    pattern = re.compile(rf"^(?:{_FLOAT.pattern})$", re.X)
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", pattern, list("-+0123456789."))
    return Loader


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())
