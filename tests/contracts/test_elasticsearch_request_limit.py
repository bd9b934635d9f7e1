"""A proxy in front of Elasticsearch that takes only small requests, as nginx does by default."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from headwater.compose.settings import StackSettings
from headwater.projections.errors import Unloadable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.elasticsearch.client import document, send, write
from headwater.projections.stores.names import index_name
from headwater.projections.stores.store import Target
from tests.contracts.opened_stores import OnElasticsearch
from tests.contracts.view_histories import BY_THING
from tests.support.elasticsearch_client import elasticsearch
from tests.support.waiting import BOUND_S

LIMIT_BYTES = 20_000
REFUSAL = b"<html><head><title>413 Request Entity Too Large</title></head></html>"
HOP = frozenset({"host", "connection", "content-length", "transfer-encoding", "content-encoding"})


@dataclass
class Proxy:
    """Its address, and how many requests it has refused."""

    url: str
    refused: list[int] = field(default_factory=list)


@contextmanager
def limited(server: str) -> Iterator[Proxy]:
    """A proxy in front of `server` that refuses larger bodies."""

    class Forward(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if len(body) > LIMIT_BYTES:
                proxy.refused.append(len(body))
                self._answer(413, {"content-type": "text/html"}, REFUSAL)
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            answer = client.request(self.command, f"{server}{self.path}", content=body, headers=headers)
            self._answer(answer.status_code, dict(answer.headers), answer.content)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _forward  # noqa: N815

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with httpx.Client(trust_env=False, timeout=BOUND_S) as client:
        listening = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
        proxy = Proxy(f"http://127.0.0.1:{listening.server_port}")
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield proxy
        finally:
            listening.shutdown()
            thread.join()
            listening.server_close()


@pytest.fixture
def settings(stack: StackSettings) -> StoreSettings:
    at = stack.endpoints
    return StoreSettings(f"t_{uuid.uuid4().hex[:12]}", at.postgres, at.elasticsearch, at.valkey, 1)


def test_a_request_that_is_too_large_for_a_proxy_is_sent_in_halves(settings: StoreSettings) -> None:
    form, index = DocumentForm.of(BY_THING), index_name(settings.environment, BY_THING.name, 1)
    with OnElasticsearch(settings) as server, limited(settings.elasticsearch) as proxy:
        server.open().create(Target(BY_THING, 1), {}, {})
        rows = [write(f"k{n}", document(form, f"k{n}", {}, {})) for n in range(301)]
        with elasticsearch(proxy.url) as client:
            assert send(client, index, rows) == [201] * 301
            assert proxy.refused
            client.indices.refresh(index=index)
            assert client.count(index=index)["count"] == 301
            large = write("large", document(form, "large", {"more": "x" * LIMIT_BYTES}, {}))
            with pytest.raises(Unloadable, match="HTTP 413"):
                send(client, index, [rows[0], large, rows[1]])
