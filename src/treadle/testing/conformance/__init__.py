"""The rules of the model seam as a pytest suite for a `Model` of your own.

    class TestMyModel(ModelConformance):
        def model(self, server):
            return MyModel(server.url, key=server.api_key, idle_timeout_seconds=server.idle_timeout_seconds)

        def wire(self, spoken):
            match spoken:
                case Answer(): ...      # text, reasoning, calls, usage and stop as the events of this wire format
                case Failure(): ...     # an HTTP refusal, or an error inside a stream
                case TokenCount(): ...  # only for models with `count_tokens`
            return Reply((b"...", b"..."))

The suite scripts a server on loopback through `wire`, and looks at what the model makes of it and at what it sends.
What a model cannot do is skipped by its `Capabilities`, or by `lacks` with a reason. Nothing else is skipped.

The rules of a `Store` are another suite, `StoreConformance`.
"""

from __future__ import annotations

from treadle.testing.conformance.answers import Answer, Failure, Piece, Spoken, TokenCount
from treadle.testing.conformance.content import ContentTests
from treadle.testing.conformance.contract import ContractTests
from treadle.testing.conformance.failing import FailureTests
from treadle.testing.conformance.history import HistoryTests
from treadle.testing.conformance.sending import SendingTests
from treadle.testing.conformance.server import CLOSE, RESET, STALL, Reply, Seen, Server
from treadle.testing.conformance.stores import StoreConformance
from treadle.testing.conformance.streaming import StreamTests
from treadle.testing.conformance.suite import Feature

__all__ = [
    "CLOSE",
    "RESET",
    "STALL",
    "Answer",
    "Failure",
    "Feature",
    "ModelConformance",
    "Piece",
    "Reply",
    "Seen",
    "Server",
    "Spoken",
    "StoreConformance",
    "TokenCount",
]


class ModelConformance(ContractTests, ContentTests, HistoryTests, SendingTests, FailureTests, StreamTests):
    """Every rule that a `Model` must keep, as tests. Subclass it as `TestSomething` and write two methods.

    `model(server)` gives a new model that talks to `server.url` with `server.api_key`, and gives up a silent server
    after `server.idle_timeout_seconds`. `wire(spoken)` gives the `Reply` that says an `Answer`, a `Failure` or a
    `TokenCount` in the model's wire format. A model without a wire lacks `"wire"` and answers `server.answers`, one
    for each request; one that cannot be told what to answer lacks `"script"` as well.

    - `lacks`: features that the model does not have, each with its reason, which the skipped tests show.
    - `opaque`: parts like a redacted thought, which `wire` can say and which must go back as they came.
    - `kept(body)`: what of a request later ones must extend, where that is not all of it.
    - `request(...)`: the requests of the tests, for models that need something of their own in each.
    - `seconds`: how long anything may take. `streams`: how many are open at once in the test of many.

    The tests are plain functions, each with an event loop of its own; no plugin for asyncio is needed.
    """
