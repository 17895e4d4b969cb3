# /// script
# dependencies = ["fastapi==0.165.0", "httpx==0.28.1", "python-multipart"]
# ///
# Handlers of both kinds, a form, a file, a web socket and what follows an answer.
from fastapi import BackgroundTasks, Depends, FastAPI, File, Form, HTTPException, WebSocket
from fastapi.testclient import TestClient
from pydantic import BaseModel

app = FastAPI()
done: list[str] = []


class Sheep(BaseModel):
    name: str
    age: int = 1


def farm() -> str:
    return "hill"


@app.post("/sheep")
def make(sheep: Sheep, tasks: BackgroundTasks, where: str = Depends(farm)):
    tasks.add_task(done.append, sheep.name)
    return {"name": sheep.name, "next": sheep.age + 1, "farm": where}


@app.get("/sheep/{number}")
async def one(number: int):
    if number > 9:
        raise HTTPException(404, "no such sheep")
    return number


@app.post("/upload")
async def upload(name: str = Form(), file: bytes = File()):
    return {name: len(file)}


@app.websocket("/talk")
async def talk(socket: WebSocket):
    await socket.accept()
    await socket.send_text((await socket.receive_text()).upper())
    await socket.close()


def work() -> None:
    done.clear()
    with TestClient(app) as client:
        reply = client.post("/sheep", json={"name": "Dölly", "age": 2})
        assert reply.json() == {"name": "Dölly", "next": 3, "farm": "hill"} and done == ["Dölly"]
        assert client.get("/sheep/10").status_code == 404
        assert client.get("/sheep/none").status_code == 422
        sent = client.post("/upload", data={"name": "wool"}, files={"file": b"x" * 70_000})
        assert sent.json() == {"wool": 70_000}
        with client.websocket_connect("/talk") as socket:
            socket.send_text("baa")
            assert socket.receive_text() == "BAA"
        assert "/sheep/{number}" in client.get("/openapi.json").json()["paths"]
