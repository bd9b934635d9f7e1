"""Who may do what on Kafka: the programs of a deployment, and the access control lists that follow from its topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Program(StrEnum):
    """A program with an account of its own in each server that it needs.

    OPERATOR: `replay`, `headwater create` and `headwater status`. CONNECT: Kafka Connect's workers, for captured
    databases.
    """

    API = "api"
    HANDLER = "handler"
    PROJECTIONS = "projections"
    OPERATOR = "operator"
    SOURCES = "sources"
    CONNECT = "connect"


def account(environment: str, program: Program) -> str:
    """The name of a program's account, in every server."""
    return f"{environment}_{program}"


class Resource(StrEnum):
    """What a rule is about, as in the options of `kafka-acls.sh`."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONS = "transactional-id"


class Operation(StrEnum):
    """What a rule allows, as in the options of `kafka-acls.sh`. READ and WRITE include DESCRIBE."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"


READ: Final = frozenset({Operation.READ})
WRITE: Final = frozenset({Operation.WRITE})
CHECK: Final = frozenset({Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS})
"""To compare a topic with what Headwater needs, at the start of a program."""
JOIN: Final = READ
"""To be a member of a group."""
LOOK_UP: Final = frozenset({Operation.DESCRIBE})
"""To use a group's name without being a member: Kafka's client asks where the group is. Of a topic: whether it is
there."""
MAKE: Final = CHECK | {Operation.CREATE, Operation.ALTER_CONFIGS}
DELETE: Final = frozenset({Operation.DELETE})
"""Of a topic, or of its records."""
REMAKE: Final = CHECK | READ | WRITE | DELETE | {Operation.CREATE}


@dataclass(frozen=True, order=True)
class Rule:
    """What a program may do with a resource. name: in full; is_prefix: of all resources whose names begin so."""

    resource: Resource
    name: str
    operations: frozenset[Operation]
    is_prefix: bool = False


def merged(rules: Iterable[Rule]) -> list[Rule]:
    """The same rules, with one per resource, in the order of their names."""
    merged_operations: dict[tuple[Resource, str, bool], frozenset[Operation]] = {}
    for rule in rules:
        key = rule.resource, rule.name, rule.is_prefix
        merged_operations[key] = merged_operations.get(key, frozenset()) | rule.operations
    return [
        Rule(resource, name, operations, is_prefix)
        for (resource, name, is_prefix), operations in sorted(merged_operations.items())
    ]


def commands_of(rules: Mapping[str, Iterable[Rule]]) -> list[str]:
    """`kafka-acls.sh` commands that give each account its rules: one per kind of resource and set of operations."""
    lines = []
    for user, own in rules.items():
        grouped: dict[tuple[Resource, bool, tuple[Operation, ...]], list[str]] = {}
        for access in merged(own):
            key = access.resource, access.is_prefix, tuple(sorted(access.operations))
            grouped.setdefault(key, []).append(access.name)
        for (resource, is_prefix, operations), names in grouped.items():
            allowed = " ".join(f"--operation {operation}" for operation in operations)
            named = " ".join(f"--{resource} {name}" for name in names)
            pattern = " --resource-pattern-type prefixed" if is_prefix else ""
            lines.append(f"{TOOL} --add --allow-principal User:{user} {allowed} {named}{pattern}")
    return lines


TOOL: Final = 'kafka-acls.sh --bootstrap-server "$KAFKA" --command-config "$KAFKA_ADMIN"'
"""KAFKA: the address of a broker. KAFKA_ADMIN: a file with the settings of a client that may change rules."""
