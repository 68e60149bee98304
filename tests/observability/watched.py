"""A server with its metrics, as an external client uses it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kcore.server.http import HttpServer
from kcore.server.observe import Observer
from tests.server.live import LiveServer

Samples = dict[tuple[str, tuple[str, ...]], float]


class Watched:
    """A running server with an HTTP port."""

    def __init__(self, live: LiveServer, server: HttpServer) -> None:
        self.live = live
        self.http = server

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        host, port = self.http.address
        connection = http.client.HTTPConnection(host, port, timeout=20)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def samples(self) -> Samples:
        """Scrapes the server with Prometheus' own parser. Returns a dict from (name, label values) to the sample's
        value.
        """
        status, text = self.get("/metrics")
        assert status == 200, text
        return parse(text)


def parse(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = (sample.name, tuple(sample.labels.values()))
            assert series not in found, f"{series} stands twice"
            found[series] = sample.value
    return found


@contextmanager
def watched(settings: dict[str, str] | None = None, loop: str = "asyncio", **options: Any) -> Iterator[Watched]:
    import asyncio

    with LiveServer(settings, loop, **options) as live:

        async def start() -> HttpServer:
            server = HttpServer(Observer(live.engine, live.driver, live.server), "127.0.0.1:0")
            await server.start()
            return server

        server = asyncio.run_coroutine_threadsafe(start(), live.loop).result(20)
        try:
            yield Watched(live, server)
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), live.loop).result(20)
