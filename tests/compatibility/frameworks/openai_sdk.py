# /// script
# dependencies = ["openai==3.57.0"]
# ///
# A chat's completion, whole and as a stream, of both clients; a transport of ours answers.
import asyncio
import json

import httpx2 as httpx
from openai import AsyncOpenAI, OpenAI, RateLimitError


def answer(asked: httpx.Request) -> httpx.Response:
    told = json.loads(asked.content)
    assert asked.headers["authorization"] == "Bearer sk-none"
    text = told["messages"][-1]["content"]
    if text == "too much":
        return httpx.Response(429, json={"error": {"message": "slow down"}})
    base = {"id": "c", "created": 0, "model": told["model"]}
    if told.get("stream"):
        parts = [
            {
                **base,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"content": c}}],
            }
            for c in text
        ]
        lines = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
        return httpx.Response(200, content=lines, headers={"content-type": "text/event-stream"})
    message = {"role": "assistant", "content": text.upper()}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return httpx.Response(200, json={**base, "object": "chat.completion", "choices": [choice]})


client = OpenAI(
    api_key="sk-none",
    max_retries=0,
    http_client=httpx.Client(transport=httpx.MockTransport(answer)),
)


def handler(event, context):
    said = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": event["text"]}]
    )
    return said.choices[0].message.content


async def several() -> list[str]:
    transport = httpx.MockTransport(answer)
    async with AsyncOpenAI(
        api_key="sk-none", http_client=httpx.AsyncClient(transport=transport)
    ) as ours:

        async def one(text):
            asked = [{"role": "user", "content": text}]
            stream = await ours.chat.completions.create(model="m", messages=asked, stream=True)
            return "".join([part.choices[0].delta.content async for part in stream])

        return await asyncio.gather(one("wölle"), one("baa"))


def work() -> None:
    assert handler({"text": "wölle"}, None) == "WÖLLE"
    assert asyncio.run(several()) == ["wölle", "baa"]
    try:
        handler({"text": "too much"}, None)
    except RateLimitError:
        return
    raise AssertionError("it was too much")
