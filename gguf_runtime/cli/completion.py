"""`completion`: what makes bash, zsh and fish complete commands, options and models.

The script that a shell loads asks the program what may follow the words so far, so it never has to be made
again. Files are the shell's own business: where nothing is printed it completes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from gguf_runtime.cli.dispatch import EARLY_FLAGS, load_command
from gguf_runtime.cli.terminal import current

SCRIPTS = {
    "bash": """\
# bash: gg completion bash > ~/.local/share/bash-completion/completions/gg
_gg_words() {
    local word words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$(printf %q "$word")")
    done < <("${COMP_WORDS[0]}" completion bash -- "${words[@]}" 2>/dev/null)
}
complete -o default -F _gg_words gg gguf-runtime
""",
    "zsh": """\
#compdef gg gguf-runtime
# zsh: gg completion zsh > ~/.zfunc/_gg, with fpath+=(~/.zfunc) before compinit
_gg_words() {
    local -a found
    found=("${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
compdef _gg_words gg gguf-runtime
""",
    "fish": """\
# fish: gg completion fish > ~/.config/fish/completions/gg.fish
function __gg_words
    set -l words (commandline -opc) (commandline -ct)
    $words[1] completion fish -- $words[2..-1] 2>/dev/null
end
complete -c gg -a '(__gg_words)'
complete -c gguf-runtime -a '(__gg_words)'
""",
}
MODELS = ("MODEL", "NAME", "FILE_OR_MODEL")
BREAKS = ":="  # bash takes what follows one of these for a word of its own


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"],
        typer.Argument(metavar="bash|zsh|fish", help="whose script to print"),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD...", help="asked by the script: print what may follow"),
    ] = None,
) -> None:
    """Print a script that completes commands, options and models.

    bash: put it where bash-completion looks, or `eval "$(gg completion bash)"` in ~/.bashrc. The
    script names a place for zsh and fish.
    """
    if not words:
        current().write(SCRIPTS[shell])
        return
    whole = _joined(words) if shell == "bash" else words
    cut = len(whole[-1]) - len(words[-1].lstrip(BREAKS))
    for word in following(whole):
        current().line(word[cut:])


def _joined(words: list[str]) -> list[str]:
    """Words as they were typed: bash hands over `hf:a` as three."""
    out: list[str] = []
    glue = False
    for word in words:
        broken = word != "" and not word.strip(BREAKS)
        if out and (glue or broken):
            out[-1] += word
        else:
            out.append(word)
        glue = broken
    return out


def following(words: list[str]) -> list[str]:
    """What the last of these words, behind the program's name, may become."""
    from gguf_runtime.cli.app import COMMANDS

    *before, start = words
    while before and before[0] in EARLY_FLAGS:
        before = before[1:]
    rows = {name: row for row in COMMANDS for name in (row.name, *row.aliases)}
    if not before or before == ["help"]:
        names = [*rows, *([] if before else ["help", "--help", "--version"])]
        return sorted(n for n in names if n.startswith(start))
    row = rows.get(before[0])
    if row is None:
        return []
    return sorted(
        {w for w in _choices(load_command(row), before[1:], start) if w.startswith(start)}
    )


def _choices(command: Any, before: list[str], start: str) -> Iterator[str]:
    options = {o: p for p in command.params if p.param_type_name == "option" for o in p.opts}
    takes = {o for o, p in options.items() if not (p.is_flag or p.count)}
    if before and before[-1] in takes:
        yield from _values(options[before[-1]])
    elif start.startswith("-"):
        from gguf_runtime.cli.parse import OLD_SPELLINGS

        yield from (o for o in options if o.startswith("--") and o not in OLD_SPELLINGS)
    else:
        given = [
            w
            for w, b in zip(before, ["", *before], strict=False)
            if b not in takes and not w.startswith("-")
        ]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        if len(given) < len(arguments):
            yield from _values(arguments[len(given)])


def _values(param: Any) -> Iterator[str]:
    choices = param.type_descriptor.choices
    if choices is not None:
        yield from map(str, choices)
    elif param.metavar in MODELS:
        yield from models()


def models() -> list[str]:
    """Names that MODEL may have, of the catalog and of files that were pulled or are elsewhere."""
    from gguf_runtime.hub.catalog import entries
    from gguf_runtime.hub.found import found
    from gguf_runtime.hub.places import models_dir
    from gguf_runtime.hub.resolve import models_in

    folder = models_dir()
    known = {e.file for e in entries().values()}
    files = models_in(folder) if folder.is_dir() else []
    names = [*entries(), *(p.stem for p in files if p.name not in known)]
    return [*names, *(f.name for f in found())]
