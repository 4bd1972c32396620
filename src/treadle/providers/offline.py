"""`offline:demo`: a stand-in that follows fixed rules, so that a run can be seen without a key, a network or a model.

It reads intents and file names out of the last prompt, asks for the tools that match, and builds its answer only from
what they returned. Everything else it declines. The same request always gets the same answer.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, NamedTuple

from treadle.errors import ConfigError
from treadle.events import ModelFinish, TextDelta, ToolCallDelta
from treadle.messages import AssistantMessage, TextPart, ToolCallPart, ToolMessage, ToolResultPart, UserMessage
from treadle.model import Capabilities, model_ref
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from treadle.events import ModelEvent
    from treadle.messages import AssistantPart, Message
    from treadle.model import ModelRequest, ToolSpec

DECLINE = (
    "I am the offline stand-in and no language model: I can list a directory, read a file, summarise how it begins, "
    "count its lines and find a word in it; ask me for one of these."
)
NO_TOOL = "That takes a tool that can {} here, and none is on offer."
MAX_SHOWN = 40  # lines of a file, entries of a directory


class OfflineModel:
    """A `Model` of fixed rules; tools are its only capability. Its usage counts words. There is one, `demo`."""

    provider = "offline"
    capabilities: Capabilities = Capabilities(tools=True)

    def __init__(self, name: str = "demo") -> None:
        if name != "demo":
            raise ConfigError(f"there is no offline:{name}: write offline:demo")
        self.name = name

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
        """One answer: calls for what is still to be looked at, or else the text."""
        content = _respond(request)
        calls = [part for part in content if isinstance(part, ToolCallPart)]
        stop = StopReason.TOOL_CALLS if calls else StopReason.END
        message = AssistantMessage(content, stop, model_ref(self))
        for index, call in enumerate(calls):
            yield ToolCallDelta(index=index, call_id=call.id, name=call.name, args=call.args)
        for piece in re.findall(r"(?:\s*\S+){1,6}\s*", message.text):
            yield TextDelta(text=piece)
        read = [request.instructions or "", *(_text_of(earlier) for earlier in request.messages)]
        written = [message.text, *(call.args for call in calls)]
        usage = Usage(len(" ".join(read).split()), len(" ".join(written).split()))
        yield ModelFinish(message=message, usage=usage, stop=stop, raw_stop=stop.value, model=message.model)


class Look(NamedTuple):
    """One thing to look at: `list` a directory or `read` a file."""

    verb: str
    path: str


class Task(NamedTuple):
    """What the prompt wants to know; `word` is what to find."""

    intent: str
    look: Look
    word: str = ""


# The first that matches is a clause's intent.
INTENTS = (
    ("find", r"\b(find|search|grep|look for|contains?|mentions?|occurs?)\b(?! (the |all )*(files|folders)\b)"),
    ("count", r"\bhow many lines\b|\bnumber of lines\b|\bcount\b.*\blines\b|\bhow long\b"),
    ("list", r"\blist\b|\bls\b|\bfiles\b|\bdirector(y|ies)\b|\bfolders?\b|\bwhat([\u2019']s| is) (in|here|there)\b"),
    ("project", r"\b(this|the|your) (project|repo(sitory)?|package|code ?base|program)\b"),
    ("summarise", r"\bsummar|\boverview\b|\bgist\b|\babout\b|\bbegins?\b|\bfirst lines\b|\bdescribe\b|\bexplain\b"),
    ("read", r"\b(read|show|print|open|cat|display|says?|contents?|look at)\b"),
)
# Where the word to find stands, best first.
WORDS = (
    r"\b(?:word|term|text|string|phrase|name)\s+(\S+)",
    r"\bfor\s+(?:the\s+)?(\S+)",
    r"\b(?:find|search|grep|contains?|mentions?)\s+(?:the\s+|any\s+)?(\S+)",
)
# Which tool does what: its usual names, and the usual names of the parameter that matters.
TOOLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "list": (("list_directory", "list_files", "list_dir", "ls"), ("path", "directory", "dir", "folder")),
    "read": (("read_file", "view_file", "open_file", "cat"), ("path", "file", "filename", "file_path", "name")),
}
_CLAUSES = re.compile(r"[?!;\n]+|[.,:](?=\s|$)|\band\b|\bthen\b", re.IGNORECASE)
_TOKENS = re.compile(r"""(?<!\w)(["'`]).+?\1(?!\w)|\S+""")
_QUOTES = "\"'`“”()[]{}<>,:;?!"
_FILE = re.compile(
    r"(?!(?:e\.g|i\.e)$)(?:.*/)?(?:[^/]*\.[A-Za-z]\w{0,9}|README|LICENSE|NOTICE|Makefile|Dockerfile)", re.DOTALL
)
_BEFORE_DIRECTORY = re.compile(r"in|of|under|inside|ls|list", re.IGNORECASE)
_NO_DIRECTORY = re.compile(
    r"the|this|that|which|what|a|my|your|our|here|there|it|me|current|working|directory|directories|folders?|files?|all|every"
    r"thing|project|repository|repo|package|root|please",
    re.IGNORECASE,
)
MAX_PROMPT = 10_000  # characters that the rules are tried on


def _respond(request: ModelRequest) -> tuple[AssistantPart, ...]:
    last = max((i for i, message in enumerate(request.messages) if isinstance(message, UserMessage)), default=-1)
    tools = {verb: found for verb in TOOLS if (found := _tool_for(verb, request.tools))}
    seen = _seen(request.messages[last + 1 :], tools)
    tasks = _tasks(request.messages[: last + 1], seen)
    if not tasks:
        return (TextPart(DECLINE),)
    if missing := next((task.look.verb for task in tasks if task.look.verb not in tools), None):
        return (TextPart(NO_TOOL.format(missing)),)
    if looks := [look for look in dict.fromkeys(task.look for task in tasks) if look not in seen]:
        return tuple(_call(look, tools[look.verb], f"call_{len(request.messages)}_{i}") for i, look in enumerate(looks))
    return (TextPart("\n\n".join(_report(task, seen[task.look]) for task in tasks)),)


def _tool_for(verb: str, tools: Sequence[ToolSpec]) -> tuple[str, str] | None:
    """The name and the parameter of the tool on offer that fits."""
    names, keys = TOOLS[verb]
    usable = {tool.name: key for tool in tools for key in keys if key in tool.input_schema.get("properties", {})}
    best = [*(name for name in names if name in usable), *(name for name in usable if verb in name)]
    return (best[0], usable[best[0]]) if best else None


def _call(look: Look, tool: tuple[str, str], call_id: str) -> ToolCallPart:
    name, key = tool
    return ToolCallPart(call_id, name, json.dumps({key: look.path}, ensure_ascii=False))


def _seen(messages: Sequence[Message], tools: Mapping[str, tuple[str, str]]) -> dict[Look, ToolResultPart]:
    """What was looked at since the prompt, and what came of it."""
    results = {result.call_id: result for message in messages for result in getattr(message, "results", ())}
    calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.calls]
    seen = {}
    for verb, (name, key) in tools.items():
        for call in calls:
            if call.name == name and call.id in results:
                seen[Look(verb, json.loads(call.args)[key])] = results[call.id]
    return seen


def _tasks(messages: Sequence[Message], seen: Mapping[Look, ToolResultPart]) -> list[Task]:
    """What the last of `messages` asks for, clause by clause. A clause without a file name means the last one named."""
    texts = _named_in(messages)
    tasks: list[Task] = []
    files, intent = _files(" ".join(texts[:-1]))[-1:], ""
    for clause in _CLAUSES.split(texts[-1][:MAX_PROMPT] if texts else ""):
        files = (named := _files(clause)) or files[-1:]
        intent = _intent(clause, intent, names_file=bool(named))
        word = _word(clause, named) if intent == "find" else ""
        slashed = [token for token in _tokens(clause) if "/" in token]
        if intent == "project":
            tasks += _project(seen)
        elif intent == "list":
            tasks.append(Task(intent, Look("list", _directory(_tokens(clause)))))
        elif intent and (word or intent != "find"):
            tasks += [Task(intent, Look("read", file), word) for file in named or slashed or files]
    return list(dict.fromkeys(tasks))


def _named_in(messages: Sequence[Message]) -> list[str]:
    """The texts in which somebody names files, the prompt last: of what is attached, that is the first line."""
    parts = [part for message in messages if not isinstance(message, ToolMessage) for part in message.content]
    texts = [part.text if isinstance(part, TextPart) else getattr(part, "args", "") for part in parts]
    return [text.partition("\n")[0][:MAX_PROMPT] for text in texts[:-1]] + texts[-1:]


def _intent(clause: str, before: str, *, names_file: bool) -> str:
    found = next((name for name, pattern in INTENTS if re.search(pattern, clause, re.IGNORECASE)), "")
    if names_file:
        found = {"list": "read", "project": "summarise"}.get(found, found)
        return found or (before if before in ("find", "count", "summarise") else "read")
    return "list" if found == "read" and any(token.endswith("/") for token in _tokens(clause)) else found


def _project(seen: Mapping[Look, ToolResultPart]) -> list[Task]:
    """First the list of files, then the README that it shows."""
    top = Look("list", ".")
    names = _entries(seen[top].content) if top in seen and not seen[top].is_error else []
    readme = next((name for name in names if name.lower().startswith("readme")), None)
    return [Task("summarise", Look("read", readme)) if readme else Task("list", top)]


def _tokens(text: str) -> list[str]:
    tokens = [match.group().strip(_QUOTES) for match in _TOKENS.finditer(text)]
    return [token.removeprefix("@").rstrip(".") or "." for token in tokens if token]


def _files(text: str) -> list[str]:
    return [token for token in _tokens(text) if _FILE.fullmatch(token)]


def _directory(tokens: Sequence[str]) -> str:
    """A token with a slash, the first fitting one behind the last word like `in`, or the one before `folder`."""
    after = max((i for i, token in enumerate(tokens) if _BEFORE_DIRECTORY.fullmatch(token)), default=len(tokens))
    before = [token for token, noun in itertools.pairwise(tokens) if noun.lower() in ("folder", "directory")]
    plain = [token for token in (*tokens[after + 1 :], *before) if not _NO_DIRECTORY.fullmatch(token)]
    path = [*(token for token in tokens if "/" in token), *plain, "."][0]
    return path.rstrip("/") or "/"


def _word(clause: str, files: Sequence[str]) -> str:
    quoted = [match.group().strip(_QUOTES) for match in _TOKENS.finditer(clause) if match.group(1)]
    plain = [
        word.strip(_QUOTES).rstrip(".") for pattern in WORDS for word in re.findall(pattern, clause, re.IGNORECASE)
    ]
    return next((word for word in [*quoted, *plain] if word and word not in files), "")


def _report(task: Task, result: ToolResultPart) -> str:
    """The answer to one task, from what the tool returned and nothing else."""
    if result.is_error:
        return f"I could not {task.look.verb} {task.look.path}: {result.content.removeprefix(f'{task.look.path}: ')}"
    if task.intent == "list":
        names = _entries(result.content)
        return f"{task.look.path} has {_count(len(names), 'entry', 'entries')}:\n{_first(names)}"
    note = re.search(r"\n\[lines 1-(\d+) of (more than )?(\d+)[^\n]*\]$", result.content)
    text = result.content[: note.start()] if note else result.content
    lines = [] if text == "(empty file)" else text.removesuffix("\n").split("\n")
    size = f"{note[2] or ''}{note[3]} lines" if note else _count(len(lines), "line")
    return _REPORTS[task.intent](task, lines, size)


def _report_find(task: Task, lines: list[str], size: str) -> str:
    hits = [f"{i}: {line}" for i, line in enumerate(lines, 1) if task.word.casefold() in line.casefold()]
    place = f"{task.look.path} (of {size}, I read {len(lines)})"
    if not hits:
        return f"I did not find {task.word!r} in {place}."
    return f"I found {task.word!r} on {_count(len(hits), 'line')} of {place}:\n{_first(hits)}"


def _report_count(task: Task, _lines: list[str], size: str) -> str:
    return f"{task.look.path} has {size}."


def _report_summary(task: Task, lines: list[str], size: str) -> str:
    begin = [line for line in lines if line.strip()][:6]
    headings = [line.strip("# ") for line in lines if re.match(r"##+ ", line)]
    sections = f"\n\nIts sections: {', '.join(headings)}." * bool(headings and task.look.path.endswith(".md"))
    return f"{task.look.path} has {size} and begins:\n\n" + "\n".join(begin) + sections


def _report_text(task: Task, lines: list[str], size: str) -> str:
    return f"{task.look.path} has {size}:\n\n{_first(lines)}"


_REPORTS: dict[str, Callable[[Task, list[str], str], str]] = {
    "find": _report_find,
    "count": _report_count,
    "summarise": _report_summary,
    "read": _report_text,
}


def _entries(listing: str) -> list[str]:
    names = [line.partition("\t")[0] for line in listing.splitlines()]
    return [name for name in names if name and name != "(empty directory)"]


def _first(lines: Sequence[str]) -> str:
    rest = len(lines) - MAX_SHOWN
    return "\n".join(lines[:MAX_SHOWN]) + f"\n(and {rest} more)" * (rest > 0)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _text_of(message: Message) -> str:
    """All that a message says, for counting."""
    if isinstance(message, ToolMessage):
        return " ".join(result.content for result in message.results)
    return " ".join(part.text for part in message.content if isinstance(part, TextPart))
