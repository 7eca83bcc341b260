"""Reading YAML strictly: version 1.2 scalars, tabs between tokens, no repeated keys.

PyYAML implements version 1.1, in which ``1e-5`` is text, ``no`` is false and ``1:30`` is ninety.
Here its parser (libyaml) supplies the events, and the values are made by the core schema of 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from posbias.errors import SpecError
from posbias.spec._document import MAX_NESTING, one_line, shown

__all__ = ["dump_yaml", "parse_yaml"]

_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{
        f"{sign}.{word}": float(f"{sign}inf")
        for sign in ("", "+", "-")
        for word in ("inf", "Inf", "INF")
    },
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_BLANK_WITH_TAB = re.compile(r"^[ \t]*\t[ \t]*$", re.M)
_MAX_EXPANDED = 10_000_000


def parse_yaml(text: str, name: str) -> Any:
    """Parse one YAML (or JSON) document; `name` is used in messages.

    Tabs are allowed as white space between tokens, as YAML 1.2 does, and refused as indentation.

    Raises
    ------
    SpecError
        If the text is not one YAML document or a mapping repeats a key.
    """
    loader = getattr(yaml, "CSafeLoader", None)
    if loader is None:
        raise SpecError(
            "PyYAML was built without libyaml, so YAML files cannot be read; install PyYAML from a "
            "wheel (pip install --force-reinstall pyyaml) or give the spec as JSON"
        )
    # libyaml alone objects to a tab in an otherwise blank line.
    events = yaml.parse(_BLANK_WITH_TAB.sub("", text), Loader=loader)
    try:
        return _Composer(events).document()
    except (yaml.YAMLError, UnicodeError) as error:
        reason = one_line(error).replace('"<unicode string>", ', "")
        raise SpecError(f"{name} is not valid YAML: {reason}") from error


def dump_yaml(document: Any) -> str:
    """Return a document as YAML; numbers keep all their digits."""
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=None,
    )
    return text


class _Composer:
    """Builds plain values from parser events."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0

    def document(self) -> Any:
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events), 0)
        next(self._events)
        last = next(self._events)
        if not isinstance(last, yaml.StreamEndEvent):
            raise _error(last, "a second document begins; a file holds one")
        return value

    def _value(self, event: Any, level: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._count
        self._count += 1
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif level >= MAX_NESTING:
            raise _error(event, f"more than {MAX_NESTING} levels are nested")
        elif isinstance(event, yaml.SequenceStartEvent):
            _refuse_tag(event, "tag:yaml.org,2002:seq")
            value = self._sequence(level)
        else:
            _refuse_tag(event, "tag:yaml.org,2002:map")
            value = self._mapping(level)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._count - before
        return value

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise _error(event, f"the alias *{event.anchor} has no anchor before it")
        value, size = self._anchors[event.anchor]
        self._count += size
        if self._count > _MAX_EXPANDED:
            raise _error(event, f"aliases expand to more than {_MAX_EXPANDED} values")
        return value

    def _sequence(self, level: int) -> list[Any]:
        values = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            values.append(self._value(event, level + 1))
        return values

    def _mapping(self, level: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._value(event, level + 1)
            if not isinstance(key, str):
                raise _error(event, f"the key {shown(key)} is not text")
            if key in values:
                raise _error(event, f"key {shown(key)} is repeated")
            values[key] = self._value(next(self._events), level + 1)
        return values


def _scalar(event: Any) -> Any:
    text = event.value
    if not event.implicit[0]:
        _refuse_tag(event, "tag:yaml.org,2002:str")
        return text
    if text in _WORDS:
        return _WORDS[text]
    try:
        if _NUMBER.fullmatch(text):
            return float(text) if any(sign in text for sign in ".eE") else int(text)
        if _OTHER_BASE.fullmatch(text):
            return int(text, 0)
    except ValueError:
        raise _error(event, "a number has too many digits") from None
    return text


def _refuse_tag(event: Any, known: str) -> None:
    if event.tag not in (None, "!", known):
        raise _error(event, f"the tag {event.tag} is not supported")


def _error(event: Any, message: str) -> yaml.YAMLError:
    mark = event.start_mark
    return yaml.YAMLError(f"{message} in line {mark.line + 1}, column {mark.column + 1}")


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes text that version 1.2 would read as a number in quotes; no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(rf"^(?:{_NUMBER.pattern}|{_OTHER_BASE.pattern})$"),
    list("-+.0123456789"),
)
