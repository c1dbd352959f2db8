"""Sentences of the form, by code: faults of lines, fields and the whole form, refusals, choices and findings."""

import tomllib
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError

_file: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_tables: dict[str, dict[str, str]] = _file
FORM_SENTENCES, LINE_SENTENCES, FIELD_SENTENCES = _tables["form"], _tables["line"], _tables["field"]
API_FAULT_SENTENCES, HINT_SENTENCES = _tables["api_fault"], _tables["hint"]
REFUSAL_SENTENCES, CERTAINTY_SENTENCES, LAYOUT_SENTENCES = _tables["refusal"], _tables["certainty"], _tables["layout"]
KIND_SENTENCES: dict[str, dict[str, str]] = _file["kind"]
"""The texts of each kind of row, by its name."""


def slot_fault(field: str, code: str, **values: object) -> ValidationError:
    return ValidationError({field: _tables["slot"][code].format(**values)}, code)
