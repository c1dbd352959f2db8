"""A proxy in front of a development chain. It adds the delay of a distant node and counts exchanges."""

import asyncio
import json
import threading
from collections import Counter
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web


class DistantNode:
    """A proxy that forwards JSON-RPC to `url` with a delay of `seconds` for each exchange.

    `exchanges` lists the methods of each exchange, in order. `asked` counts questions by method and first parameter.
    """

    def __init__(self, url: str, seconds: float = 0) -> None:
        self._target = url
        self.seconds = seconds
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="distant node", daemon=True)
        self.exchanges: list[list[str]] = []
        self.asked: Counter[tuple[str, str]] = Counter()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def forget(self) -> None:
        self.exchanges.clear()
        self.asked.clear()

    def methods(self) -> Counter[str]:
        return Counter(method for exchange in self.exchanges for method in exchange)

    async def _start(self) -> str:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        application = web.Application(client_max_size=2**30)
        application.router.add_post("/", self._forward)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}/"

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _forward(self, request: web.Request) -> web.Response:
        content = await request.read()
        body = json.loads(content)
        questions = body if isinstance(body, list) else [body]
        self.exchanges.append([question["method"] for question in questions])
        self.asked.update((question["method"], str(*question.get("params", ())[:1])) for question in questions)
        await asyncio.sleep(self.seconds / 2)
        async with self._session.post(
            self._target, data=content, headers={"Content-Type": "application/json"}
        ) as response:
            answer = await response.read()
        await asyncio.sleep(self.seconds / 2)
        return web.Response(body=answer, status=response.status, content_type="application/json")
