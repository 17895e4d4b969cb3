# /// script
# dependencies = ["pymongo==4.20.0"]
# ///
import bson
from pymongo import MongoClient, UpdateOne


def work() -> None:
    assert bson.decode(bson.encode({"sheep": [1, 41]})) == {"sheep": [1, 41]}
    client = MongoClient("mongodb://localhost/", connect=False)
    assert client["farm"]["flock"].full_name == "farm.flock"
    assert UpdateOne({"a": 1}, {"$set": {"b": 2}}) == UpdateOne({"a": 1}, {"$set": {"b": 2}})
