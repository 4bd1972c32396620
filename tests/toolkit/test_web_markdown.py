"""HTML as Markdown: what is kept, what goes, and where links lead. In the tests it runs in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from treadle.toolkit import _markdown
from treadle.toolkit._markdown import to_markdown
from treadle.toolkit.web import _converter_folders

URL = "https://site.example/docs/page.html"


def convert(html: str, url: str = URL, max_bytes: int = 100_000) -> dict[str, Any]:
    return to_markdown(html, url, max_bytes)


def text_of(html: str) -> str:
    return convert(html)["text"]


def test_what_a_page_says_is_kept():
    html = """<!doctype html><title>Guide</title><body><header><a href="/">Home</a></header><main>
    <h1>Guide</h1><p>With <strong>bold</strong>, <em>slant</em> and <code>code</code>.</p>
    <pre><code class="language-python">def f(a):\n    return a[0](1)\n</code></pre>
    <ul><li>one<ul><li>inner</li></ul></li><li>two</li></ul><ol><li>first</li></ol>
    <table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>x|y</td></tr></tbody></table>
    <blockquote>said</blockquote><img src="pic.png" alt="A picture"></main></body>"""
    found = convert(html)
    assert found["title"] == "Guide"
    for piece in (
        "# Guide", "**bold**", "*slant*", "`code`", "```python\ndef f(a):\n    return a[0](1)\n```", "- one\n  - inner\n- two",
        "1. first", "| a | b |", "| 1 | x\\|y |", "> said", "![A picture](https://site.example/docs/pic.png)",
    ):  # fmt: skip
        assert piece in found["text"], piece


def test_what_no_reader_sees_and_what_stands_around_the_text_goes():
    html = """<body><nav>menu</nav><div class="site-cookie-banner">cookies</div><script>code()</script><style>p{}</style>
    <template>later</template><noscript>plain</noscript><p>Text <span hidden>unseen</span><i aria-hidden="true">icon</i></p>
    <p style="display:none">invisible</p><!-- comment --><iframe src="/x">frame</iframe><svg><text>drawn</text></svg>
    <form><select><option>choice</select><button>press</button></form><section id="cookies"><p>About cookies.</p></section><footer>imprint</footer>"""
    text = text_of(html)
    assert "Text" in text
    assert "About cookies." in text
    for word in (
        "menu",
        "code()",
        "p{}",
        "later",
        "unseen",
        "icon",
        "invisible",
        "comment",
        "frame",
        "drawn",
        "imprint",
        "choice",
        "press",
    ):
        assert word not in text, word


def test_a_page_that_is_nothing_but_a_menu_is_shown():
    assert text_of("<body><nav><a href=/a>One</a></nav></body>") == "[One](https://site.example/a)"


@pytest.mark.parametrize(
    ("href", "whole"),
    [
        ("a.html", "https://site.example/docs/a.html"),
        ("../a?x=1&amp;y=2#z", "https://site.example/a?x=1&y=2#z"),
        ("//other.example/", "https://other.example/"),
        ("?q", "https://site.example/docs/page.html?q"),
        ("#part", "https://site.example/docs/page.html#part"),
        ("HTTPS://Other.example/", "https://Other.example/"),
        ("mailto:a@site.example", "mailto:a@site.example"),
    ],
)
def test_links_are_made_whole(href: str, whole: str):
    assert text_of(f'<p><a href="{href}">x</a></p>') == f"[x]({whole})"


def test_a_base_is_respected_unless_it_is_no_address():
    assert text_of('<base href="/other/"><a href="a">x</a>') == "[x](https://site.example/other/a)"
    assert text_of('<base href="javascript:1"><a href="a">x</a>') == "[x](https://site.example/docs/a)"


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "java&#10;script:alert(1)", "java&#9;script:alert(1)",
        "&#1;javascript:alert(1)", "javascript&colon;alert(1)", "vbscript:x", "data:text/html,x", "file:///etc/passwd", "blob:x",
        "http://[", "tel:1", "about:blank", "view-source:x",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "html",
    [
        '<p><a href="{}">x</a></p>', '<p>x<img src="{}"></p>', '<p><img src="{}" alt="x"></p>', '<video src="{}">x</video>',
        '<blockquote cite="{}">x</blockquote>', '<form action="{}"><button formaction="{}">x</button></form>x', '<audio src="{}">x</audio>x',
        '<p>x<svg><a xlink:href="{}">y</a></svg></p>', '<p>x<object data="{}">y</object></p>', '<base href="{}"><p>x</p>', '<p>x<embed src="{}"></p>',
        '<p>x<img srcset="{} 2x"></p>', '<p>x<iframe src="{}"></iframe></p>', '<map><area href="{}">x</map>', '<link href="{}"><p>x</p>',
        '<picture><source srcset="{}"><img alt="x"></picture>', '<video poster="{}">x</video>', '<q cite="{}">x</q>',
        '<p>x <del cite="{}">y</del></p>', '<p><a href="{}"><img src="{}">x</a></p>', '<input type="image" src="{}">x',
    ],
)  # fmt: skip
def test_no_link_runs_a_script_or_leads_into_this_machine(html: str, link: str):
    text = text_of(html.replace("{}", link))
    assert "x" in text
    for word in ("script", "data:", "file:", "blob:", "tel:", "about:", "http://["):
        assert word not in text.lower(), text


def test_a_picture_inside_the_page_leaves_its_description():
    assert text_of('<p>See <img src="data:image/png;base64,AAAA" alt="a chart">.</p>') == "See a chart."


@pytest.mark.parametrize(
    ("meta", "target"),
    [
        ('http-equiv="refresh" content="0; url=/next"', "https://site.example/next"),
        ("http-equiv=REFRESH content=\"5;URL='https://other.example/'\"", "https://other.example/"),
        ('http-equiv="refresh" content="30"', None),
        ('http-equiv="refresh" content="0; url=javascript:x()"', None),
        ('http-equiv="content-type" content="x; url=/next"', None),
    ],
)
def test_where_a_page_sends_a_browser_on_to_is_told(meta: str, target: str | None):
    assert convert(f"<head><meta {meta}></head><p>x")["refresh"] == target


def test_a_text_is_cut_between_characters_and_its_whole_size_is_told():
    found = convert("<p>" + "é" * 100, max_bytes=51)
    assert (found["text"], found["size"]) == ("é" * 25, 200)


@pytest.mark.parametrize(
    "html", ["", "<", "\0", "<p", "</p></p>", "<!doctype", "&#xD800;", "<title></title>", "<base href>", "<img>"]
)
def test_broken_pages_are_read_as_far_as_they_go(html: str):
    assert len(convert(html)["text"]) < 10


# The process it runs in


def run(request: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", "-S", _markdown.__file__, *_converter_folders()]
    return subprocess.run(
        command, input=json.dumps(request).encode(), capture_output=True, env={}, timeout=60, check=False
    )


def test_it_runs_alone_with_the_two_packages_and_nothing_else():
    done = run({"html": "<title>T</title><p>日本", "url": URL, "max_bytes": 100})
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == {"title": "T", "text": "日本", "size": 6, "refresh": None}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits of memory are Linux's")
def test_a_page_that_would_take_all_memory_ends_that_process_only():
    html = "<blockquote>" * 190 + "x<br>" * 200_000  # some 80 MB of text, and much more on the way
    assert run({"html": html, "url": URL, "max_bytes": 100}).returncode != 0
