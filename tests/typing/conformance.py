"""A suite for a model of one's own is fully typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from treadle import ModelFinish, ModelRequest
from treadle.testing import ScriptedModel
from treadle.testing.conformance import Answer, Failure, ModelConformance, Reply, Server, Spoken, TokenCount

if TYPE_CHECKING:
    from treadle import Model


class InProcess(ModelConformance):
    lacks = {"wire": "it answers in process"}
    streams = 10

    def model(self, server: Server) -> Model:
        return ScriptedModel(*[answer.text for answer in server.answers if isinstance(answer, Answer)])


class OverHttp(ModelConformance):
    lacks = {"wires": "there is no such feature"}  # type: ignore[dict-item]  # pyright: ignore[reportAssignmentType]

    def model(self, server: Server) -> Model:
        assert_type(server.url, str)
        assert_type(server.idle_timeout_seconds, float)
        return ScriptedModel()

    def wire(self, spoken: Spoken) -> Reply:
        match spoken:
            case Answer(pieces=pieces):
                return Reply(tuple([piece.encode() for piece in pieces if isinstance(piece, str)]))
            case Failure(status=status, message=message):
                return Reply((message.encode(),), status)
            case TokenCount(tokens=tokens):
                return Reply((str(tokens).encode(),))


def check(suite: InProcess) -> None:
    assert_type(suite.request("Hello"), ModelRequest)
    assert_type(suite.finish(Answer(("Hello",))), ModelFinish)
