# /// script
# dependencies = ["strawberry-graphql==0.341.2"]
# ///
# Strawberry's getting started: a schema, asked with variables, in the handler.
import asyncio

import strawberry


@strawberry.type
class Book:
    title: str
    author: str


@strawberry.type
class Query:
    @strawberry.field
    async def books(self, first: int = 10) -> list[Book]:
        await asyncio.sleep(0)
        return [Book(title="The Great Gatsby", author="F. Scott Fitzgerald")][:first]


@strawberry.type
class Mutation:
    @strawberry.mutation
    def add_book(self, title: str, author: str) -> Book:
        return Book(title=title, author=author)


schema = strawberry.Schema(query=Query, mutation=Mutation)


async def handler(event, context):
    result = await schema.execute(event["query"], variable_values=event.get("variables"))
    return {"data": result.data, "errors": [str(error) for error in result.errors or []]}


async def work() -> None:
    assert await handler({"query": "{ books(first: 1) { title } }"}, None) == {
        "data": {"books": [{"title": "The Great Gatsby"}]},
        "errors": [],
    }
    made = 'mutation($t: String!) { addBook(title: $t, author: "Ö") { title author } }'
    answer = await handler({"query": made, "variables": {"t": "Wool"}}, None)
    assert answer["data"] == {"addBook": {"title": "Wool", "author": "Ö"}}, answer
    assert "Cannot query field" in (await handler({"query": "{ sheep }"}, None))["errors"][0]
