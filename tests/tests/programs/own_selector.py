# A sync handler runs a loop of the module's, whatever the module has for a selector, and a process-wide policy is kept.
# Right: [true, 2].
import asyncio
import selectors

loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
asyncio.set_event_loop(loop)


async def work(n):
    await asyncio.sleep(0)
    return [asyncio.get_running_loop() is loop, n]


def handler(event, context):
    return loop.run_until_complete(work(2)) if event else work(2)
