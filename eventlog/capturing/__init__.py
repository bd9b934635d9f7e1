"""Captured databases: declares their tables, configures Debezium and reads its records. Imports only `eventlog`."""

from headwater.eventlog.capturing.columns import Column, Hashed, Kind, Truncated
from headwater.eventlog.capturing.declaring import Captured, Source, SourceRegistry

__all__ = ["Captured", "Column", "Hashed", "Kind", "Source", "SourceRegistry", "Truncated"]
