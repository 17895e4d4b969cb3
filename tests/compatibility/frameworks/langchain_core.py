# /// script
# dependencies = ["langchain-core==1.8.3"]
# ///
# A prompt, a model that answers what it is told to, a parser and a tool, as a chain.
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiplies two numbers."""
    return a * b


prompt = ChatPromptTemplate.from_messages([("system", "You are {who}."), ("human", "{question}")])


def handler(event, context):
    model = FakeListChatModel(responses=[event["answer"]])
    chain = prompt | model | (JsonOutputParser() if event.get("json") else StrOutputParser())
    both = RunnableParallel(said=chain, asked=RunnableLambda(lambda told: told["question"].upper()))
    return both.invoke({"who": "a shepherd", "question": event["question"]})


def work() -> None:
    assert handler({"question": "how?", "answer": "wölle"}, None) == {
        "said": "wölle",
        "asked": "HOW?",
    }
    told = handler({"question": "n", "answer": '```json\n{"n": [1, 2]}\n```', "json": True}, None)
    assert told["said"] == {"n": [1, 2]}, told
    assert multiply.invoke({"a": 6, "b": 7}) == 42 and multiply.args["a"]["type"] == "integer"
    chain = prompt | FakeListChatModel(responses=["abc"]) | StrOutputParser()
    assert list(chain.stream({"who": "x", "question": "y"})) == ["a", "b", "c"]
    assert chain.batch([{"who": "x", "question": "y"}] * 4) == ["abc"] * 4
