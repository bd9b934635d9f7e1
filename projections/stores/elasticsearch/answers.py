"""Elasticsearch's answers to requests with many items, each of which may fail for its own reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from elasticsearch import ApiError, TransportError
from elasticsearch.helpers import ScanError

from headwater.projections.errors import LacksRight, StoreUnavailable, Unloadable

NAME: Final = "Elasticsearch"
CONFLICT: Final = 409
TOO_LARGE: Final = 413
INDEX_GONE: Final = "index_not_found_exception"
NO_RIGHT: Final = "security_exception"
REFUSED: Final = frozenset(
    {
        "document_parsing_exception",
        "mapper_parsing_exception",
        "strict_dynamic_mapping_exception",
        "x_content_parse_exception",
        "illegal_argument_exception",
    }
)
"""Errors caused by the document: a retry would fail again. For other errors, the caller waits."""


class IndexGone(StoreUnavailable):
    """The index of a generation was dropped."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise the client's errors as StoreUnavailable."""
    try:
        yield
    except (TransportError, ApiError, ScanError) as error:
        raise unavailable(error) from error


def unavailable(error: TransportError | ApiError | ScanError) -> StoreUnavailable:
    """What the client's error means."""
    kind = LacksRight if isinstance(error, ApiError) and error.error == NO_RIGHT else StoreUnavailable
    return kind(NAME, str(error))


def documents(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `mget` found and did not find, in the order of the ids.

    Raises IndexGone, and StoreUnavailable if a document could not be read, for example because its shard is not
    assigned: then it is not known whether the document exists.
    """
    for each in answer["docs"]:
        if "error" in each:
            raise _problem(each["error"])
    return list(answer["docs"])


def statuses(answer: Mapping[str, Any]) -> list[int]:
    """The status of each item of a `bulk`: success or CONFLICT.

    Raises IndexGone, Unloadable if a document does not match the mapping, and StoreUnavailable for other errors.
    """
    outcomes = [outcome for item in answer["items"] for outcome in item.values()]
    failed = [each for each in outcomes if each["status"] >= 300 and each["status"] != CONFLICT]
    for outcome in sorted(failed, key=lambda each: not _is_of_data(each)):  # refused items can be left out
        error = outcome.get("error", {})
        if _is_of_data(outcome):
            raise Unloadable(NAME, _reason(error))
        raise _problem(error)
    return [outcome["status"] for outcome in outcomes]


def _is_of_data(outcome: Mapping[str, Any]) -> bool:
    error = outcome.get("error", {})
    if outcome["status"] == TOO_LARGE:
        return True
    # two indexes behind one write alias, as after a restore, are not caused by the document
    of_the_alias = error.get("type") == "illegal_argument_exception" and "alias" in str(error.get("reason"))
    return outcome["status"] == 400 and error.get("type") in REFUSED and not of_the_alias


def _problem(error: Mapping[str, Any]) -> StoreUnavailable:
    if error.get("type") == INDEX_GONE:
        return IndexGone(NAME, _reason(error))
    if error.get("type") == NO_RIGHT:
        return LacksRight(NAME, _reason(error))
    return StoreUnavailable(NAME, f"{error.get('type')}: {_reason(error)}")


def _reason(error: Mapping[str, Any]) -> str:
    return f"{error.get('reason')} {error.get('caused_by', {}).get('reason', '')}".strip()
