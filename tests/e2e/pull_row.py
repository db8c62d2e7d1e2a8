"""Pulls one model whose catalog row is given as JSON: what tests start in a process of its own."""

from __future__ import annotations

import json
import sys

from gguf_runtime.errors import GGUFRuntimeError
from gguf_runtime.hub import puller
from gguf_runtime.hub.catalog import Entry

fields = json.loads(sys.argv[1])
row = Entry(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
puller.find = lambda name: row  # type: ignore[assignment]
try:
    print(puller.pull(row.name))
except GGUFRuntimeError as e:
    print(e, file=sys.stderr)
    sys.exit(e.exit_code)
