"""What a fold reads of one event: fields, constants and simple arithmetic, native in Spark and plain in Python."""

from headwater.projections.table.expressions.computations import Arithmetic, Sortable, When, computed
from headwater.projections.table.expressions.constants import Constant, Null, Value
from headwater.projections.table.expressions.fields import Field, Point, without_digits
from headwater.projections.table.expressions.from_envelope import ENVELOPE_TYPES, FromEnvelope, format_milliseconds
from headwater.projections.table.expressions.generated_text import attribute, from_json, identifier, literal, typed
from headwater.projections.table.expressions.source import Expression, Source, UnknownField
from headwater.projections.table.expressions.words import (
    Readable,
    envelope,
    expression,
    field,
    minus,
    negative,
    point,
    value,
    when,
)

__all__ = [
    "ENVELOPE_TYPES",
    "Arithmetic",
    "Constant",
    "Expression",
    "Field",
    "FromEnvelope",
    "Null",
    "Point",
    "Readable",
    "Sortable",
    "Source",
    "UnknownField",
    "Value",
    "When",
    "attribute",
    "computed",
    "envelope",
    "expression",
    "field",
    "format_milliseconds",
    "from_json",
    "identifier",
    "literal",
    "minus",
    "negative",
    "point",
    "typed",
    "value",
    "when",
    "without_digits",
]
