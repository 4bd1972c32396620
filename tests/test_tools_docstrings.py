"""Descriptions out of docstrings."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from treadle import _docstrings
from treadle.tools import Tool, tool

GOOGLE = """Finds events
    in the log.

    Works on a copy: nothing is changed.

    Args:
        query: What to look for,
            over two lines.
        limit (int): How many at most. Defaults to 10.
        gone: Not in the signature.
        *rest: Nor this.

    Returns:
        The events.

    Raises:
        ValueError: If there are none.
    """
NUMPY = """Finds events
    in the log.

    Works on a copy: nothing is changed.

    Parameters
    ----------
    query : str
        What to look for,
        over two lines.
    limit : int, optional
        How many at most. Defaults to 10.

    Returns
    -------
    list of str
        The events.
    """
SPHINX = """Finds events
    in the log.

    Works on a copy: nothing is changed.

    :param query: What to look for,
        over two lines.
    :param int limit: How many at most. Defaults to 10.
    :type query: str
    :returns: The events.
    :raises ValueError: If there are none.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_all_three_styles_say_the_same(docstring: str):
    def find(query: str, limit: int = 10) -> list[str]: ...

    find.__doc__ = docstring
    made = tool(find)
    assert made.description == "Finds events\nin the log.\n\nWorks on a copy: nothing is changed."
    assert made.input_schema["properties"] == {
        "query": {"description": "What to look for, over two lines.", "type": "string"},
        "limit": {"description": "How many at most. Defaults to 10.", "type": "integer", "default": 10},
    }


def test_one_entry_may_describe_two_numpy_parameters():
    text = "Moves.\n\nParameters\n----------\nx, y : int\n    Where to.\n"
    assert _docstrings.read(text) == ("Moves.", {"x": "Where to.", "y": "Where to."})


def test_attributes_of_a_class_are_no_parameters():
    text = "Moves.\n\nAttributes:\n    speed: How fast.\n\nArgs:\n    x: Where to.\n"
    assert _docstrings.read(text) == ("Moves.", {"x": "Where to."})


@pytest.mark.parametrize(
    ("docstring", "description"),
    [
        (None, ""),
        ("", ""),
        ("   \n  ", ""),
        ("One line.", "One line."),
        ("One line.\n\n    And more: with a colon.\n", "One line.\n\nAnd more: with a colon."),
        ("Runs code.\n\n    ```\n    if x:\n        Args: 3\n    ```", "Runs code.\n\n```\nif x:\n    Args: 3\n```"),
        ("Line.\nNext.", "Line.\nNext."),
        ("Lone \ud800.", "Lone �."),
        ("An empty section.\n\nArgs:\n", "An empty section.\n\nArgs:"),
        ("\n    Args:\n        a: First.", "Args:\n    a: First."),
        ("Use `:param x:` in text.", "Use `:param x:` in text."),
    ],
)
def test_odd_docstrings(docstring: Any, description: str):
    def odd(a: int) -> None: ...

    odd.__doc__ = docstring
    made = tool(odd)
    assert made.description == description
    assert made.input_schema["properties"]["a"]["type"] == "integer"


@pytest.mark.parametrize(
    "docstring",
    [
        "Broken.\n\nArgs:\nquery what\n  :",
        "Broken.\n\n:param\n:param x\n:type:",
        "Broken.\n\n:param a b c d: x",
        "Broken.\n\nParameters\n----------\n----------\n: :\n",
        "Broken.\n\nReturns:\n\nReturns:\n",
        "Broken.\n\nArgs:\n    a",
        "Args:\nArgs:\nArgs:\n",
        "\n---\n---\n",
    ],
)
def test_broken_docstrings_still_make_a_tool(docstring: str):
    def odd(a: int) -> None: ...

    odd.__doc__ = docstring
    assert "Broken" in tool(odd).description or not docstring.startswith("Broken")
    assert tool(odd).input_schema["required"] == ["a"]


PIECES = [
    "Args:",
    "    a: x",
    ":param a: b",
    ":param",
    "Returns:",
    "a : int",
    "---",
    "----------",
    "",
    "  ",
    "é",
    "\ud800",
]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("\n".join)))
def test_no_docstring_ever_fails(docstring: str):
    description, parameters = _docstrings.read(docstring)
    for text in (description, *parameters.values()):
        text.encode()


@pytest.mark.parametrize("docstring", [3, object(), ["x"]])
def test_a_docstring_that_is_no_text_counts_as_none(docstring: Any):
    def odd() -> None: ...

    odd.__doc__ = docstring
    assert tool(odd).description == ""


class Doc:
    def __init__(self, documentation: str) -> None:
        self.documentation = documentation


def test_an_annotation_describes_better_than_the_docstring():
    @tool
    def go(
        a: Annotated[int, "from a string"],
        b: Annotated[int, Field(description="from a field")],
        c: Annotated[int, Doc("from a Doc"), Field(ge=1)],
        d: int = Field(4, description="from a default"),
        e: int = 5,
    ) -> None:
        """Goes.

        Args:
            a: docstring
            b: docstring
            c: docstring
            d: docstring
            e: docstring
        """

    assert [one["description"] for one in go.input_schema["properties"].values()] == [
        *("from a string", "from a field", "from a Doc", "from a default", "docstring"),
    ]
    assert go.input_schema["properties"]["c"]["minimum"] == 1


def test_a_given_description_replaces_the_text_and_keeps_the_parameters():
    def go(a: int) -> None:
        """Goes.

        Args:
            a: How far.
        """

    made: Tool[..., Any] = tool(go, description="Runs.")
    assert (made.description, made.input_schema["properties"]["a"]["description"]) == ("Runs.", "How far.")
