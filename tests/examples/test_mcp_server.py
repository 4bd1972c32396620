from __future__ import annotations

import mcp_server

from support.mcp_serving import connected


async def test_the_served_example_counts_words_and_reads_files(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("# Hello\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    async with connected(mcp_server.served) as client:
        counted = await client.call_tool("most_common_words", {"text": "a b A c a", "count": 1})
        read = await client.call_tool("reader", {"prompt": "List the files here."})
    assert counted.structured_content == {"a": 3}
    assert "README.md" in read.content[0].text
