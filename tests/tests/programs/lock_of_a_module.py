# A lock and a queue of the module are used in each call. Right in every call of an instance: [[1, 2], "event"].
import asyncio

lock = asyncio.Lock()
queue = asyncio.Queue()


async def hold(n):
    async with lock:
        await asyncio.sleep(0.01)
        return n


async def handler(event, context):
    await queue.put(event)
    both = await asyncio.gather(hold(1), hold(2))
    return [both, await queue.get()]
