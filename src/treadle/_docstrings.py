"""Docstrings in Google, NumPy and Sphinx style: what a tool does, and what its parameters mean."""

from __future__ import annotations

import inspect
import re

from treadle.messages import encodable

# Cheap signs of a section. Only where one of them shows is the parser imported, which costs 27 ms.
_STYLES = {
    "google": re.compile(
        r"^(Args|Arguments|Parameters|Params|Attributes|Returns|Yields|Raises|Examples?):[ \t]*$", re.MULTILINE
    ),
    "numpydoc": re.compile(r"^\S[^\n]*\n-{3,}[ \t]*$", re.MULTILINE),
    "rest": re.compile(
        r"^:(param|parameter|arg|argument|key|keyword|raises|returns?|rtype|type)\b[^\n]*:", re.MULTILINE
    ),
}


def read(docstring: str | None) -> tuple[str, dict[str, str]]:
    """The description without its sections, and the description of each parameter. Never fails.

    A docstring that cannot be parsed is the description as a whole.
    """
    text = encodable(inspect.cleandoc(docstring)).strip() if isinstance(docstring, str) else ""
    style = next((name for name, sign in _STYLES.items() if sign.search(text)), None)
    if style is None:
        return text, {}
    try:
        return _parse(text, style)
    except Exception:  # noqa: BLE001 - a docstring is prose: whatever the parser makes of it, the tool must work
        return text, {}


def _parse(text: str, style: str) -> tuple[str, dict[str, str]]:
    import importlib

    parsed = importlib.import_module(f"docstring_parser.{style}").parse(text)
    paragraphs = [parsed.short_description, parsed.long_description]
    glue = "\n\n" if parsed.blank_after_short_description else "\n"
    parameters: dict[str, str] = {}
    for parameter in parsed.params:
        if parameter.args[0] == "attribute":
            continue
        described = " ".join((parameter.description or "").split())
        for name in parameter.arg_name.split(","):
            if described:
                parameters.setdefault(name.strip().lstrip("*"), described)
    return glue.join(paragraph for paragraph in paragraphs if paragraph), parameters
