"""`python -m gguf_runtime` is `gguf-runtime`."""

from __future__ import annotations

import sys

from gguf_runtime.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
