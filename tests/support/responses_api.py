"""The Responses API in terms of chat completions: what the stub server needs to speak both."""

from collections.abc import Iterator
from typing import Any, TypeAlias, cast

JsonObject: TypeAlias = dict[str, Any]


def as_messages(request: JsonObject) -> list[JsonObject]:
    """The messages of a request, in the shape of chat completions."""
    messages: list[JsonObject] = []
    if request.get("instructions"):
        messages.append({"role": "system", "content": request["instructions"]})
    given = request.get("input") or []
    items: list[JsonObject] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            call = {
                "id": item.get("call_id"),
                "type": "function",
                "function": {"name": item.get("name"), "arguments": item.get("arguments")},
            }
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            messages.append(
                {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
            )
        else:
            messages.append({"role": item.get("role", "user"), "content": item.get("content")})
    return messages


def as_response(completion: JsonObject) -> JsonObject:
    """A chat completion in the shape of a response."""
    message: JsonObject = completion["choices"][0]["message"]
    output: list[JsonObject] = []
    if message.get("content"):
        output.append(
            {
                "type": "message",
                "id": f"msg-{completion['id']}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": message["content"], "annotations": []}],
            }
        )
    output.extend(
        {
            "type": "function_call",
            "id": f"fc-{call['id']}",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "status": "completed",
        }
        for call in cast("list[JsonObject]", message.get("tool_calls") or [])
    )
    usage: JsonObject = completion["usage"]
    read, written = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return {
        "id": completion["id"],
        "object": "response",
        "created_at": completion["created"],
        "model": completion["model"],
        "status": "completed",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": (read or {}).get("cached_tokens", 0)},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": (written or {}).get("reasoning_tokens", 0)},
            "total_tokens": usage["total_tokens"],
        },
    }


def as_events(response: JsonObject) -> Iterator[JsonObject]:
    """The events of a streamed response."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    number = 0

    def event(kind: str, **fields: Any) -> JsonObject:
        nonlocal number
        number += 1
        return {"type": kind, "sequence_number": number, **fields}

    yield event("response.created", response=begun)
    for index, item in enumerate(cast("list[JsonObject]", response["output"])):
        place = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            opening = {**item, "status": "in_progress", "content": []}
            yield event("response.output_item.added", output_index=index, item=opening)
            for word in item["content"][0]["text"].split(" "):
                yield event(
                    "response.output_text.delta", **place, content_index=0, delta=f"{word} ", logprobs=[]
                )
        else:
            opening = {**item, "status": "in_progress", "arguments": ""}
            yield event("response.output_item.added", output_index=index, item=opening)
            yield event("response.function_call_arguments.delta", **place, delta=item["arguments"])
            yield event(
                "response.function_call_arguments.done",
                **place,
                name=item["name"],
                arguments=item["arguments"],
            )
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response)
