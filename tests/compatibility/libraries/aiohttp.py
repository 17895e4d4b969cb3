# /// script
# dependencies = ["aiohttp==3.14.5"]
# ///
# A server and a client that talk through a pair of sockets, on one event loop.
import asyncio
import socket

from aiohttp import BaseConnector, ClientSession, web
from aiohttp.client_proto import ResponseHandler


class Pair(BaseConnector):
    """Connects to a server of this process, wherever a request is for."""

    def __init__(self, server):
        super().__init__()
        self.server = server

    async def _create_connection(self, req, traces, timeout):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(self.server, theirs)
        make = getattr(self, "_factory", None) or (lambda: ResponseHandler(loop=loop))
        _, protocol = await loop.connect_accepted_socket(make, ours)
        return protocol


async def add(request):
    body = await request.json()
    await asyncio.sleep(0.001)
    return web.json_response({"sum": sum(body["numbers"]), "path": request.path})


async def talk() -> None:
    app = web.Application()
    app.router.add_post("/add/{farm}", add)
    runner = web.AppRunner(app)
    await runner.setup()
    async with ClientSession(connector=Pair(runner.server)) as session:

        async def one(number):
            body = {"numbers": list(range(number))}
            async with session.post(f"http://flock/add/{number}", json=body) as reply:
                assert reply.status == 200
                return (await reply.json())["sum"]

        assert await asyncio.gather(*(one(n) for n in range(8))) == [0, 0, 1, 3, 6, 10, 15, 21]
        async with session.get("http://flock/nowhere") as reply:
            assert reply.status == 404
    await runner.cleanup()


def work() -> None:
    asyncio.run(talk())
