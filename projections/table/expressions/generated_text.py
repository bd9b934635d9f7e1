"""Names and texts in the source that expressions become: Python that is compiled, and Spark SQL."""

from __future__ import annotations

from headwater.projections.table.types import ColumnType


def attribute(name: str) -> str:
    """The name in compiled source of a field with this name in JSON."""
    return "f_" + "".join(c if c.isascii() and c.isalnum() else "_" if c == "_" else f"_{ord(c):x}_" for c in name)


def typed(text: str, kind: ColumnType) -> str:
    """Python source that reads `text`, a decoded field of this type, in the form of rows."""
    if kind.is_decimal:
        return f"decimal_{kind.digits}_{kind.places}({text})"
    functions = {
        ColumnType.TIME: "time_text",
        ColumnType.JSON: "json_text",
        ColumnType.DATE: "date_text",
        ColumnType.UUID: "uuid_text",
    }
    return f"{functions[kind]}({text})" if kind in functions else text


def identifier(name: str) -> str:
    """`name` quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def from_json(text: str, schema: str) -> str:
    """Spark SQL that parses a JSON text; null if it is none. schema: in Spark's syntax.

    By default Spark also reads texts that are no JSON, such as those in single quotes.
    """
    strictly = "map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')"
    return f"from_json({text}, {literal(schema)}, {strictly})"


def literal(text: str) -> str:
    """`text` as a Spark SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    escaped = escaped.replace("\0", "\\u0000")
    return f"'{escaped}'"
