WHOSE = "asyncio"
