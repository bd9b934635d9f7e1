"""A field becomes personal: `replay reseal` leaves no byte of it in clear in the log, and everything else goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from headwater.compose.settings import StackSettings
from headwater.compose.testing.deployment import RunningDeployment
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import Record
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, OBSERVATIONS, PROCESSES
from tests.acceptance.personal_deployment import PersonalDeployment
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("a deployment of its own")

MARK = uuid.uuid4().hex[:10]
FIRST, SECOND, PLACE, LATER = CANARIES = [f"{name}{MARK}" for name in ("first", "second", "place", "later")]
ADA, BOB = f"ada-{MARK}", f"bob-{MARK}"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def replay(variables: Mapping[str, str], *words: str) -> Ran:
    command = [sys.executable, "-m", "headwater", *words]
    env = {**os.environ, **variables}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def killed_at(variables: Mapping[str, str], line: str) -> None:
    """Run `replay reseal`, and kill it once it says this."""
    command = [sys.executable, "-m", "headwater", "replay", "reseal", "--yes"]
    with subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        said = ""
        for said in running.stderr:
            if line in said:
                running.kill()
                break
        assert line in said


def send(deployment: RunningDeployment, kind: str, **body: Any) -> str:
    answer = deployment.http.post(f"/commands/guest.{kind}", json=body).raise_for_status().json()
    return str(answer["position"])


def seen(deployment: RunningDeployment, place: str) -> httpx.Response:
    body = {"id": uuid.uuid4().hex, "source": "door", "data": {"guest_id": ADA, "place": place}}
    return deployment.http.post("/observations/seen", json=body)


def row(deployment: RunningDeployment, key: str, position: str) -> Any:
    def found() -> Any:
        answer = deployment.http.get(f"/views/guests/{key}", params={"after": position, "wait_ms": "10000"})
        return answer.json() if answer.is_success else None

    return eventually(found, f"the view has {position}")


def kept(settings: LogSettings, topic: str) -> dict[tuple[int, int], Record]:
    """The records of a topic by place, without heartbeats."""
    with closing(KafkaLog(settings)) as log:
        return {
            (each.partition, each.offset): each
            for partition in range(settings.partitions)
            for each in log.read(topic, partition, 0)
            if not is_heartbeat_key(each.key)
        }


def segments_with(stack: StackSettings, settings: LogSettings, *texts: str) -> list[Path]:
    """The files of Kafka that have one of these texts, of the topics that are copied; also of deleted ones."""
    words = [word for text in texts for word in ("-e", text)]
    command = ["grep", "-rlaF", "--include=*.log", *words, f"{stack.state.resolve()}/"]  # files may vanish meanwhile
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    names = tuple(settings.topic(each) for each in (EVENTS, OBSERVATIONS))
    return [span for span in map(Path, ran.stdout.splitlines()) if span.parent.name.startswith(names)]


@pytest.mark.complete
def test_it_leaves_nothing_in_clear_and_everything_goes_on(personal: PersonalDeployment) -> None:
    variables, stack = personal.variables(), personal.stack
    settings = LogSettings.from_environment(variables)

    with personal.before() as first:
        send(first, "arrive", guest_id=BOB, email=SECOND)
        position = send(first, "arrive", guest_id=ADA, email=FIRST)
        seen(first, PLACE).raise_for_status()
        assert row(first, ADA, position)["emails"] == [FIRST]
        eventually(lambda: len(kept(settings, PROCESSES)) >= 2, "the process has instances")
        refused = replay(variables, "replay", "reseal", "--yes")
        assert refused.code == 1
        programs = ("handler", "processes", "loader.postgres", "api")
        assert all(f"{settings.environment}.{program}" in refused.err for program in programs)
    for canary in (FIRST, PLACE):
        assert segments_with(stack, settings, canary), "else nothing is searched"
    before = {topic: kept(settings, topic) for topic in (EVENTS, OBSERVATIONS)}
    resealed(variables)
    is_the_same_log(settings, before)
    goes_on(personal.running(), position)
    logs = "".join(path.read_text(errors="replace") for path in (personal.state / "logs").rglob("*") if path.is_file())
    assert "was recreated" not in logs
    assert "reading again" not in logs
    eventually(lambda: segments_with(stack, settings, *CANARIES) == [], "the deleted files are gone")


def resealed(variables: Mapping[str, str]) -> None:
    """Plan it, begin it twice, and finish it; nothing starts meanwhile."""
    plan = json.loads(replay(variables, "replay", "reseal", "--dry-run", "--json").out)
    assert [plan["found"][topic]["clear"] for topic in (EVENTS, OBSERVATIONS)] == [2, 1]
    assert (plan["found"][EVENTS]["persons"], plan["instances"], plan["rebuild"]) == (2, 2, ["guests", "streams"])
    eventually(lambda: "programs are running" not in replay(variables, "replay", "reseal").err, "all have left")
    for line in ("events: sealing partition 1", "events: copying partition 1 back"):
        killed_at(variables, line)
        for words, code in ((["handler"], 1), (["projections"], 1), (["api"], 2), (["replay", "rebuild", "--all"], 1)):
            waits = replay(variables, *words)
            assert (waits.code, "run `replay reseal` until it is done" in waits.err) == (code, True), waits
    done = replay(variables, "replay", "reseal", "--yes", "--json")
    assert (done.code, json.loads(done.out)["unfinished"]) == (0, [EVENTS]), done
    assert "done" in replay(variables, "audit", "--verb", "replay reseal").out
    nothing = json.loads(replay(variables, "replay", "reseal", "--json").out)
    assert (nothing["outcome"], nothing["instances"]) == ("nothing is in plaintext", 0)


def is_the_same_log(settings: LogSettings, before: Mapping[str, Mapping[tuple[int, int], Record]]) -> None:
    for topic, records in before.items():
        after = kept(settings, topic)
        assert list(after) == list(records)
        for place, record in records.items():
            assert (after[place].key, after[place].timestamp_ms) == (record.key, record.timestamp_ms)
            assert not any(canary.encode() in (after[place].value or b"") for canary in CANARIES)
    instances = {record.key: record.value or b"" for record in kept(settings, PROCESSES).values()}
    assert not any(canary.encode() in instances[f"stay/{guest}"] for guest in (ADA, BOB) for canary in CANARIES)


def goes_on(deployment: RunningDeployment, position: str) -> None:
    """Positions from before, commands on streams from before, instances, rebuilds, comparisons, and erasing."""
    assert row(deployment, ADA, position)["emails"] == [FIRST]
    later = send(deployment, "arrive", guest_id=ADA, email=LATER)
    eventually(lambda: row(deployment, ADA, later)["told"] == "2", "the instance from before has sent its command")
    assert row(deployment, BOB, later)["emails"] == [SECOND]
    seen(deployment, LATER).raise_for_status()
    deployment.rebuild("guests", "streams")
    deployment.verify("guests", "streams")
    found = row(deployment, ADA, later)
    assert (found["emails"], found["arrivals"], found["told"]) == ([FIRST, LATER], 2, "2")
    events = deployment.http.get(f"/streams/guest/{ADA}").json()["events"]
    assert [event["data"].get("email") for event in events] == [FIRST, LATER, None]
    letters = json.loads(replay(deployment.variables, "replay", "dead-letters", "list", "--json").out)
    assert letters["letters"] == []
    assert "destroyed: " in replay(deployment.variables, "erase", ADA, "--yes").out
    forgotten = f"/streams/guest/{ADA}"
    eventually(lambda: FIRST not in deployment.http.get(forgotten).text, "what was in clear is erased, too")
    assert LATER not in deployment.http.get(forgotten).text
