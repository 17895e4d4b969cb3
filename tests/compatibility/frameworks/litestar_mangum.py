# /// script
# dependencies = ["litestar==2.25.0", "mangum==0.22.0"]
# ///
# Litestar's minimal example, behind Mangum.
from dataclasses import dataclass

from litestar import Litestar, get, post
from mangum import Mangum
from request import request


@dataclass
class Sheep:
    name: str
    age: int


@get("/")
async def index() -> str:
    return "Hello, world!"


@get("/books/{book_id:int}", sync_to_thread=True)
def get_book(book_id: int) -> dict[str, int]:
    return {"book_id": book_id}


@post("/sheep")
async def make(data: Sheep) -> Sheep:
    return Sheep(data.name, data.age + 1)


handler = Mangum(Litestar([index, get_book, make]), lifespan="off")


def work() -> None:
    import json

    assert handler(request("GET", "/"), None)["body"] == "Hello, world!"
    assert json.loads(handler(request("GET", "/books/7"), None)["body"]) == {"book_id": 7}
    made = handler(request("POST", "/sheep", body='{"name": "Dölly", "age": 1}'), None)
    assert made["statusCode"] == 201 and json.loads(made["body"]) == {"name": "Dölly", "age": 2}, (
        made
    )
    assert handler(request("POST", "/sheep", body='{"name": 1}'), None)["statusCode"] == 400
