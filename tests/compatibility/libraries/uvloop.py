# /// script
# dependencies = ["uvloop==0.23.0"]
# ///
# An event loop of libuv: timers, threads, a pair of sockets.
# machines: Function not implemented
import asyncio
import socket
import time

import uvloop


async def talk() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=ours)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, uvloop.Loop)
    writer.write(b"baa\n" * 50_000)
    got = 0
    while got < 200_000:
        got += len(await loop.sock_recv(theirs, 65536))
    await loop.sock_sendall(theirs, b"end\n")
    assert await reader.readline() == b"end\n"
    writer.close()
    theirs.close()
    begun = time.monotonic()
    await asyncio.gather(*(asyncio.sleep(0.05) for _ in range(50)))
    assert 0.04 < time.monotonic() - begun < 20
    assert await asyncio.to_thread(sum, range(1000)) == 499500


def work() -> None:
    uvloop.run(talk())
