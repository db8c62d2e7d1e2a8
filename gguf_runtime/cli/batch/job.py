"""One call of `batch`, from the open input to the summary."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.batch import manifest, records, trial
from gguf_runtime.cli.batch.line import is_error, notices_of
from gguf_runtime.cli.batch.output import Growing, Output
from gguf_runtime.cli.batch.progress import Progress, lines
from gguf_runtime.cli.batch.request import SEEDS, Item, Plan, item_of
from gguf_runtime.cli.batch.source import Source
from gguf_runtime.cli.batch.work import Work
from gguf_runtime.cli.load import load, offer_pull
from gguf_runtime.cli.terminal import OutputError, Terminal
from gguf_runtime.errors import ExitCode

if TYPE_CHECKING:
    from gguf_runtime import Model


class Done:
    """Numbers of lines, one bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self.n = 0

    def add(self, line: int) -> None:
        """Take a line in."""
        at, bit = divmod(line, 8)
        if at >= len(self._bits):
            self._bits.extend(bytes(max(at + 1 - len(self._bits), len(self._bits) + 1024)))
        if not self._bits[at] >> bit & 1:
            self._bits[at] |= 1 << bit
            self.n += 1

    def __contains__(self, line: int) -> bool:
        at, bit = divmod(line, 8)
        return at < len(self._bits) and bool(self._bits[at] >> bit & 1)


class Job:
    """Answers what of an input is not answered yet."""

    ordered = retry_errors = overwrite = False

    def __init__(
        self,
        terminal: Terminal,
        model: str,
        limit: int | None,
        parallel: int | None,
    ) -> None:
        self._terminal, self._model = terminal, model
        self._limit, self._parallel = limit, parallel
        self._source: Source
        self._plan: Plan
        self._done = Done()
        self._errors = 0
        self._told: list[tuple[int, str, str]] = []  # line, code, message of earlier notices
        self._total: int | None = None

    # ---- a run ---------------------------------------------------------------------------------

    def run(self, source: Source, plan: Plan, output: Output) -> ExitCode:
        """Answer, save, sum up."""
        self._source, self._plan = source, plan
        before = self._before(output) if isinstance(output, Growing) else None
        self._count()
        left = None if self._total is None else self._total - self._done.n
        if before is not None and left == 0:
            return self._finished(output, None)
        machine = self._plan.settings.machine()
        if before is not None and machine.get("context") is None:
            machine["context"] = str(before["context"])
        with load(self._terminal, self._model, **machine) as m:
            if isinstance(output, Growing):
                self._begin(output, before, m)
            progress = Progress(self._terminal, self._total, self._done.n, self._errors)
            self._greet(output, progress)
            work = Work(output, progress, self._plan.format, self._model)
            try:
                with progress:
                    streams = self.ordered and not output.resumes
                    work.run(m, self._items(), self._parallel, ordered=streams)
            except KeyboardInterrupt:
                self._stopped(output)
                raise
            except OutputError as e:
                if e.quiet:
                    raise
                return self._full(output, e)
        return self._finished(output, progress)

    def _before(self, output: Growing) -> dict[str, Any] | None:
        """The facts of what stands in the output; None where nothing does, or nothing shall count."""
        if output.empty or self.overwrite:
            return None
        facts: dict[str, Any] = manifest.read(output.path)["facts"]
        asked = self._plan.settings.seed
        self._plan = replace(self._plan, seed=facts.get("seed", 0) if asked is None else asked)
        offer_pull(self._terminal, self._model, offline=self._plan.settings.offline)
        now = self._facts(self._fingerprint()) | {"context": facts.get("context")}
        manifest.refuse_other(output.path, facts, now)
        if self.retry_errors:
            output.keep(lambda line: not is_error(line))
        for line in output.lines():
            self._done.add(line["line"])
            self._errors += is_error(line)
            self._told += notices_of(line, {code for _, code, _ in self._told})
        return facts

    def _begin(self, output: Growing, before: dict[str, Any] | None, m: Model) -> None:
        if before is not None:
            now = self._facts(m.info.fingerprint) | {"context": m.context}
            manifest.refuse_other(output.path, before, now)
            return
        self._choose_seed()
        output.clear()
        facts = self._facts(m.info.fingerprint) | {"context": m.context}
        manifest.write(
            output.path, facts, manifest.about(self._model, m, self._source, self._total)
        )

    def _facts(self, fingerprint: str) -> dict[str, Any]:
        return manifest.facts_of(self._plan, self._source, fingerprint)

    def _fingerprint(self) -> str:
        from gguf_runtime.gguf import open_file
        from gguf_runtime.hub.resolve import resolve

        with open_file(resolve(self._model)) as file:
            return file.fingerprint()

    def _choose_seed(self) -> None:
        if self._plan.seed < 0:
            asked = self._plan.settings.seed
            seed = secrets.randbelow(SEEDS) if asked is None else asked
            self._plan = replace(self._plan, seed=seed)

    # ---- the lines -----------------------------------------------------------------------------

    def _count(self) -> None:
        if self._source.again:
            self._total = sum(1 for _ in islice(records.read(self._source), self._limit))

    def _items(self) -> Iterator[Item]:
        """Items of the lines that are not answered yet."""
        self._choose_seed()
        for record in islice(records.read(self._source), self._limit):
            if record.line not in self._done:
                yield item_of(record, self._plan)

    # ---- words ---------------------------------------------------------------------------------

    def _greet(self, output: Output, progress: Progress) -> None:
        say, total = self._terminal.say, self._total
        for line, code, message in self._told:
            self._terminal.notice(code, f"line {line:,}: {message}")
            progress.notices[code] = 1
        what = self._source.name if total is None else f"{lines(total)} of {self._source.name}"
        if self._done.n:
            say(f"going on with {output.name}: {self._done.n:,} of {what} are answered already")
        else:
            say(f"answering {what}, to {output.name}")

    def _stopped(self, output: Output) -> None:
        self._terminal.clear()
        if isinstance(output, Growing):
            n = output.count()
            held = f"{lines(n)} in {output.name}" if n else "before the first answer"
            self._terminal.say(f"stopped: {held}; the same command goes on from there")

    def _full(self, output: Output, e: OutputError) -> ExitCode:
        rows = [OutputError(OSError(0, str(e)), output.name).line]
        if isinstance(output, Growing):
            n = output.count()
            rows.append(
                f"{lines(n)} are saved; make room, then the same command goes on from there"
            )
        self._terminal.error(rows)
        return ExitCode.OUTPUT

    def _finished(self, output: Output, progress: Progress | None) -> ExitCode:
        errors = self._errors + (0 if progress is None else progress.errors)
        say = self._terminal.say
        self._terminal.clear()
        if isinstance(output, Growing):
            output.sync()
            if self.ordered:
                output.sort()
        if progress is None:
            self._greet(output, Progress(self._terminal, None, 0, 0))
            say("nothing is left to do")
        else:
            say(f"{progress.summary()}; seed {self._plan.seed}")
            for code, n in progress.notices.items():
                if n > 1:
                    say(f"{lines(n)} with the notice {code}")
        if not errors:
            return ExitCode.DONE
        look = f"jq -c 'select(.error)' {output.name}" if isinstance(output, Growing) else ""
        say(f"{errors:,} could not be answered{': ' + look if look else ''}")
        if look:
            say("once the cause is gone, --retry-errors asks them again")
        return ExitCode.NOT_CLEAN

    # ---- a trial -------------------------------------------------------------------------------

    def dry(self, source: Source, plan: Plan) -> ExitCode:
        """Count, try, report on stdout."""
        self._source, self._plan = source, plan
        self._count()
        with load(self._terminal, self._model, **self._plan.settings.machine()) as m:
            found = trial.count(m, self._items(), self._terminal, self._total)
            pace = None
            if found.first:
                self._terminal.say(f"trying for about {trial.TRIAL_S:.0f} s how fast it goes")
                pace = trial.trial(m, found.first, self._parallel)
            for row in trial.report(found, pace, m.context):
                self._terminal.line(row)
        return ExitCode.NOT_CLEAN if found.n_errors else ExitCode.DONE
