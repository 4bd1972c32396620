"""Use in a notebook, one cell after the other (the marks are understood by most notebook editors).

A kernel that already runs an event loop, as Jupyter's does, takes `await agent.run(...)` in a cell. Plain scripts and
shells without one use `run_sync`.
"""

# %% An agent is configuration: build it once, use it in every cell
from treadle import Agent, ConfigError
from treadle.toolkit import Workspace

agent = Agent("offline:demo", tools=Workspace().read_only())

# %% Without a running event loop
first = agent.run_sync("List the files here.")
print(first.text)

# %% The conversation goes on from the last result
second = agent.run_sync("Read README.md.", messages=first.messages)
print(second.text)

# %% What it did, step by step
for step in second.steps:
    print(step.index, step.stop, [f"{call.name} {call.args}" for call in step.calls])
print((first.usage + second.usage).total_tokens, "tokens")


# %% With a running event loop `run_sync` refuses and says what to write instead
async def cell() -> None:
    try:
        agent.run_sync("List the files here.")
    except ConfigError as error:
        print("refused:", error)
    result = await agent.run("List the files here.")
    print(result.stop)


# %% In Jupyter the line below is `await cell()`
if __name__ == "__main__":
    import asyncio

    asyncio.run(cell())
