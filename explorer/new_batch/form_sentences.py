"""Sentences about faults of the form, by code: of pasted lines, fields, slots and the whole form, and refusals."""

import tomllib
from pathlib import Path

from django.core.exceptions import ValidationError

_tables: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
FORM_SENTENCES, LINE_SENTENCES, FIELD_SENTENCES = _tables["form"], _tables["line"], _tables["field"]
API_FAULT_SENTENCES, HINT_SENTENCES = _tables["api_fault"], _tables["hint"]
REFUSAL_SENTENCES = _tables["refusal"]


def slot_fault(field: str, code: str, **values: object) -> ValidationError:
    return ValidationError({field: _tables["slot"][code].format(**values)}, code)
