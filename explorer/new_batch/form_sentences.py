"""Sentences of the form, by code: faults of lines, fields and the whole form, refusals, choices and findings."""

import tomllib
from pathlib import Path

from django.core.exceptions import ValidationError

_tables: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
FORM_SENTENCES, LINE_SENTENCES, FIELD_SENTENCES = _tables["form"], _tables["line"], _tables["field"]
API_FAULT_SENTENCES, HINT_SENTENCES = _tables["api_fault"], _tables["hint"]
REFUSAL_SENTENCES, CERTAINTY_SENTENCES, LAYOUT_SENTENCES = _tables["refusal"], _tables["certainty"], _tables["layout"]
KIND_LABELS, KIND_HINTS = _tables["kind_label"], _tables["kind_hint"]
WORDS_LABELS, ANSWER_NAMES = _tables["words_of"], _tables["answer_of"]


def slot_fault(field: str, code: str, **values: object) -> ValidationError:
    return ValidationError({field: _tables["slot"][code].format(**values)}, code)
