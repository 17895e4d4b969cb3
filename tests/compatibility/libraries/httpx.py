# /// script
# dependencies = ["httpx==0.28.1"]
# ///
# Calls an ASGI and a WSGI application, and a transport that answers by itself.
import asyncio

import httpx


async def asgi(scope, receive, send):
    assert scope["type"] == "http"
    body = (await receive())["body"]
    kind = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 201, "headers": kind})
    await send({"type": "http.response.body", "body": body[::-1], "more_body": True})
    await send({"type": "http.response.body", "body": "ö".encode()})


def wsgi(environ, start_response):
    start_response("200 OK", [("Set-Cookie", "sheep=dolly; Path=/")])
    return [environ["QUERY_STRING"].encode()]


async def several() -> list[str]:
    transport = httpx.ASGITransport(app=asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://farm") as client:
        replies = await asyncio.gather(*(client.post("/", content=f"<{n}") for n in range(5)))
        assert {reply.status_code for reply in replies} == {201}
        return [reply.text for reply in replies]


def work() -> None:
    assert asyncio.run(several()) == [f"{n}<ö" for n in range(5)]
    with httpx.Client(transport=httpx.WSGITransport(app=wsgi), base_url="http://farm") as client:
        assert client.get("/", params={"q": "a b"}).text == "q=a+b"
        assert client.cookies["sheep"] == "dolly"
    mock = httpx.MockTransport(lambda request: httpx.Response(503, request=request))
    with httpx.Client(transport=mock) as client:
        try:
            client.get("https://flock/").raise_for_status()
        except httpx.HTTPStatusError as error:
            assert error.response.status_code == 503
        else:
            raise AssertionError("503 is an error")
