"""docs/cli.md, made from the program: the help of every command, exit codes, settings and where they come from.

    python docs/cli.py           write the page
    python docs/cli.py --check   say whether it is what the program says; exit code 1 where not
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["COLUMNS"] = "100"

PAGE = Path(__file__).with_name("cli.md")

HEAD = """# The command line

<!-- cli:begin -->
This page is made by `make docs` from the program's own help.
`gg` is a short name of `gguf-runtime`; `gg COMMAND --help` prints what stands here.

| command | |
|---|---|
"""
SETTINGS = """
## Settings

A value comes from the first of these that gives one:

1. the command line
2. the environment
3. `config.toml`
4. the model file, which may recommend values for sampling
5. what is built in

`--show-settings` prints every value with where it comes from.
Each value that is taken from `config.toml` is a notice; `--no-config` leaves the file out.
`replay` never reads it, and Python does not either.

```toml
# ~/.config/gguf-runtime/config.toml
temperature = 0.2      # any setting by its long name, for every command that has it
threads = 2

[run]                  # any option of one command
json = true
```

Settings for every command:
"""
VARIABLES = {
    "GGUF_RUNTIME_MODELS": "folder of pulled models, else `$XDG_DATA_HOME/gguf-runtime/models`",
    "GGUF_RUNTIME_CACHE": "folder of compiled kernels and kept packs, else `$XDG_CACHE_HOME/gguf-runtime`",
    "GGUF_RUNTIME_CONFIG": "the configuration file; empty: none",
    "GGUF_RUNTIME_THREADS": "threads, where `--threads` does not say",
    "GGUF_RUNTIME_ISA": "instruction set of the kernels: one that `gg doctor` lists",
    "GGUF_RUNTIME_EXACT": "1: plain numpy in float64, slow; a reference",
    "HF_TOKEN": "for models of the hub that ask who you are",
    "HF_HOME": "where the hub's cache is",
    "HF_HUB_OFFLINE": "1: as `--offline`",
    "NO_COLOR": "no colours, as `--no-color`",
    "XDG_STATE_HOME": "saved chats are in `gguf-runtime/chats` below it, else below `~/.local/state`",
}


def page() -> str:
    """The whole page."""
    from gguf_runtime.cli.app import COMMANDS
    from gguf_runtime.cli.dispatch import load_command
    from gguf_runtime.cli.settings import table
    from gguf_runtime.errors import ExitCode

    out = [HEAD]
    for row in COMMANDS:
        also = "".join(f" (also `{a}`)" for a in row.aliases)
        out.append(f"| [`{row.name}`](#{row.name}){also} | {row.summary} |\n")
    for row in COMMANDS:
        command = load_command(row)
        with command.make_context(f"gg {row.name}", [], resilient_parsing=True) as ctx:
            out.append(f"\n## {row.name}\n\n```text\n{command.get_help(ctx)}\n```\n")
    out.append(SETTINGS)
    out.append(", ".join(f"`{name.replace('_', '-')}`" for name in table()) + ".\n")
    out.append("\n## Environment\n\n| variable | |\n|---|---|\n")
    out += [f"| `{name}` | {words} |\n" for name, words in VARIABLES.items()]
    out.append("\n## Exit codes\n\n| code | |\n|--:|---|\n")
    out += [f"| {int(code)} | {code.words} |\n" for code in ExitCode]
    out.append("\nA reader that closes the pipe (`| head -1`) ends the program quietly, with 0.\n")
    out.append("<!-- cli:end -->\n")
    return "".join(out)


def main() -> int:
    """Write or check."""
    now = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(now, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == now:
        return 0
    print(f"{PAGE} is not what the program says: make docs (python docs/cli.py)", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
