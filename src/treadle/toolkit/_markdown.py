"""HTML to Markdown, in a process of its own.

The pages are strangers', and the parsers are native code: 100 kB of nested quotes take all the memory there is, one
megabyte of nested elements takes minutes, some nesting ends the process. Here that ends one that has nothing to lose.

Run as a script with the folders of the two packages as its arguments. It reads a request as JSON and writes the answer
as JSON; nothing else of treadle is loaded, which keeps it at 50 ms.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_MEMORY_BYTES = 1 << 30
MAX_CPU_SECONDS = 5  # a page of two megabytes takes 1.5
MAX_LINK = 2000  # of the one link that is shown beside the text
MAX_DEPTH = 200  # of elements; what lies deeper is left out
_LINK_SCHEMES = ("https://", "http://", "mailto:")
_LINKS = ("href", "src", "cite", "action", "data", "poster", "srcset")
_NEVER = "script, style, template, svg, iframe, object, embed, canvas, [aria-hidden=true], .headerlink"
_FURNITURE = (
    "nav, footer, dialog, button, select, textarea, [role=navigation], [role=contentinfo], [role=dialog],"
    "[class*=cookie-banner], [id*=cookie-banner], [class*=cookie-consent], [id*=cookie-consent]"
)


def to_markdown(html: str, url: str, max_bytes: int) -> dict[str, Any]:
    """The page at `url` as Markdown, links absolute: `title`, `text` (at most `max_bytes`), `size`, `refresh`.

    `size` is that of the whole text, `refresh` where the page sends a browser on to, if it does.
    """
    from selectolax.lexbor import LexborHTMLParser

    page = LexborHTMLParser(html)
    base = _base(page, url)
    title = page.css_first("title")
    refresh = _refresh(page, base)
    # What stands around a page's text goes, unless there is nothing else.
    text = _convert(page, base, f"{_NEVER}, {_FURNITURE}") or _convert(LexborHTMLParser(html), base, _NEVER)
    data = text.encode("utf-8", "replace")
    return {
        "title": " ".join(title.text().split())[:300] if title is not None else "",
        "text": data[:max_bytes].decode("utf-8", "ignore"),
        "size": len(data),
        "refresh": refresh,
    }


def _base(page: LexborHTMLParser, url: str) -> str:
    named = page.css_first("base[href]")
    return (_absolute(named.attributes.get("href"), url) if named is not None else None) or url


def _absolute(link: str | None, base: str) -> str | None:
    """`link` as a whole address; None for one that a reader cannot follow, or that runs a script."""
    try:
        whole = urljoin(base, (link or "").strip())
    except ValueError:
        return None
    return whole if whole.lower().startswith(_LINK_SCHEMES) and whole.isprintable() else None


def _refresh(page: LexborHTMLParser, base: str) -> str | None:
    for meta in page.css("meta[http-equiv][content]"):
        if (meta.attributes.get("http-equiv") or "").strip().lower() == "refresh":
            found = re.search(r"url\s*=\s*[\"']?([^\"']+)", meta.attributes.get("content") or "", re.IGNORECASE)
            return None if found is None or len(found[1]) > MAX_LINK else _absolute(found[1], base)
    return None


def _mend(node: LexborNode, name: str, base: str) -> None:
    link = _absolute(node.attributes.get(name), base)
    if link is not None and name != "srcset":
        node.attrs[name] = link
    else:
        del node.attrs[name]


def _convert(page: LexborHTMLParser, base: str, unwanted: str) -> str:
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

    for node in reversed(page.css(unwanted)):  # what is inside before what is around it, which frees it
        node.decompose()
    for name in _LINKS:
        for node in page.css(f"[{name}]"):
            _mend(node, name, base)
    for node in page.css("img:not([src])"):
        node.replace_with(node.attributes.get("alt") or "")
    options = ConversionOptions(
        bullets="-",
        compact_tables=True,
        extract_metadata=False,
        max_depth=MAX_DEPTH,
        preprocessing=PreprocessingOptions(enabled=False),  # what goes is said here
    )
    return (convert(page.html or "", options).content or "").strip()


def _limit() -> None:
    """Bounds this process; where the system has no such limits, the time that its parent allows is the only one."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def main() -> None:
    _limit()
    sys.path.extend(sys.argv[1:])
    request = json.load(sys.stdin.buffer)
    sys.stdout.write(json.dumps(to_markdown(**request)))


if __name__ == "__main__":
    main()
