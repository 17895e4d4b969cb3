# /// script
# dependencies = ["fastapi==0.165.0", "mangum==0.22.0"]
# ///
# FastAPI's first steps and its request body, behind Mangum as that documents it.
from contextlib import asynccontextmanager

from fastapi import FastAPI
from mangum import Mangum
from pydantic import BaseModel
from request import request

began = []


@asynccontextmanager
async def lifespan(app: FastAPI):
    began.append("begun")
    yield


app = FastAPI(lifespan=lifespan)


class Item(BaseModel):
    name: str
    price: float
    tax: float | None = None


@app.get("/")
def read_root():
    return {"Hello": "World", "begun": bool(began)}


@app.get("/items/{item_id}")
async def read_item(item_id: int, q: str | None = None):
    return {"item_id": item_id, "q": q}


@app.post("/items/")
async def create_item(item: Item):
    return {**item.model_dump(), "price_with_tax": item.price + (item.tax or 0)}


handler = Mangum(app)


def work() -> None:
    import json

    root = handler(request("GET", "/"), None)
    assert root["statusCode"] == 200 and json.loads(root["body"]) == {
        "Hello": "World",
        "begun": True,
    }
    item = handler(request("GET", "/items/5", query="q=some%20query"), None)
    assert json.loads(item["body"]) == {"item_id": 5, "q": "some query"}, item
    made = handler(
        request("POST", "/items/", body='{"name": "Föö", "price": 1.5, "tax": 0.5}'), None
    )
    assert json.loads(made["body"])["price_with_tax"] == 2.0, made
    assert handler(request("GET", "/items/none"), None)["statusCode"] == 422
    assert handler(request("GET", "/docs"), None)["statusCode"] == 200
