"""The conformance suite, for models that are no adapters of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import custom_model

from support.lines import LinesModel, lines_wire
from treadle.messages import ProviderPart
from treadle.providers import resolve
from treadle.testing import ScriptedModel, step
from treadle.testing.conformance import Answer, ModelConformance, Reply, Server, Spoken

if TYPE_CHECKING:
    from treadle.model import Model


class TestScriptedModel(ModelConformance):
    lacks: ClassVar = {"wire": "it answers in process"}

    def model(self, server: Server) -> Model:
        answers = [answer for answer in server.answers if isinstance(answer, Answer)]
        return ScriptedModel(*[step(*answer.pieces, usage=answer.usage, stop=answer.stop) for answer in answers])


class TestEchoModel(ModelConformance):
    lacks: ClassVar = {"wire": "it answers in process", "script": "it repeats what it hears"}

    def model(self, server: Server) -> Model:
        return custom_model.EchoModel()


class TestOfflineModel(ModelConformance):
    lacks: ClassVar = {"wire": "it answers in process", "script": "it makes its answers up"}

    def model(self, server: Server) -> Model:
        return resolve("offline:demo")


class TestLinesModel(ModelConformance):
    lacks: ClassVar = {"closed_generators": "httpx2 leaves its own to the garbage collector"}
    opaque: ClassVar = (ProviderPart("lines", "redacted", "sealed words"),)
    streams = 20

    def model(self, server: Server) -> Model:
        return LinesModel(server.url, server.api_key, server.idle_timeout_seconds)

    def wire(self, spoken: Spoken) -> Reply:
        return lines_wire(spoken)
