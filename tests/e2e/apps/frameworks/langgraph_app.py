"""A LangGraph agent with a tool; OpenInference instruments it by its entry point."""

from langchain_core.messages import AIMessageChunk, AnyMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from weather import TURNS, answer_all, report


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return report(city)


model = ChatOpenAI(model="gpt-4o-mini", stream_usage=True).bind_tools([get_weather])


def call_model(state: MessagesState) -> dict[str, list[AnyMessage]]:
    return {"messages": [model.invoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node(call_model)
builder.add_node(ToolNode([get_weather]))
builder.add_edge(START, "call_model")
builder.add_conditional_edges("call_model", tools_condition)
builder.add_edge("tools", "call_model")
graph = builder.compile(name="forecaster")
limit = {"recursion_limit": 2 * TURNS}


def ask(question: str) -> str:
    return graph.invoke({"messages": [("user", question)]}, limit)["messages"][-1].text


async def ask_async(question: str) -> str:
    state = await graph.ainvoke({"messages": [("user", question)]}, limit)
    return state["messages"][-1].text


async def ask_streamed(question: str) -> str:
    text = ""
    async for message, _ in graph.astream({"messages": [("user", question)]}, limit, stream_mode="messages"):
        text += message.text if isinstance(message, AIMessageChunk) else ""
    return text


answer_all(GraphRecursionError, ask, ask_async, ask_streamed)
