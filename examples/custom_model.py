"""A model of your own: anything that answers one request. This one repeats what it is told, word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle import Agent, AssistantMessage, Capabilities, ModelFinish, TextDelta, TextPart, Usage, UserMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from treadle import ModelEvent, ModelRequest


class EchoModel:
    """Repeats the last thing the user said. It can do nothing else, and says so."""

    provider = "example"
    name = "echo"
    capabilities = Capabilities(tools=False)

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
        heard = next(message for message in reversed(request.messages) if isinstance(message, UserMessage))
        words = [f"{word} " for part in heard.content if isinstance(part, TextPart) for word in part.text.split()]
        for word in words:
            yield TextDelta(text=word)
        usage = Usage(input_tokens=len(words), output_tokens=len(words))
        yield ModelFinish(message=AssistantMessage((TextPart("".join(words)),)), usage=usage)


agent = Agent(EchoModel(), name="echo")

if __name__ == "__main__":
    print(agent.run_sync("Over hill and dale").text)
