"""Where `quant` ends and the engine begins: its errors become ours, so that no user meets them."""

from __future__ import annotations

from types import TracebackType

from gguf_runtime.errors import MachineError
from quant.errors import QuantError


def machine_error(error: QuantError) -> MachineError:
    """The same facts in our tree: what fails below is the machine (threads, memory, kernels)."""
    return MachineError(error.what, expected=error.expected, got=error.got, hint=error.hint)


class Border:
    """`with BORDER:` turns QuantError and MemoryError into MachineError."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, QuantError):
            raise machine_error(error) from error
        if isinstance(error, MemoryError):
            raise MachineError(
                "this machine gives no more memory",
                got=str(error) or None,
                hint="use a smaller context (-c N), or ask for fewer logits at a time",
            ) from error


BORDER = Border()
