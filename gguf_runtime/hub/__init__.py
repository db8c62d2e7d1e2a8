"""Models by name: the catalog, the places where files live, and pulling them."""

from gguf_runtime.hub.catalog import Entry, entries, find
from gguf_runtime.hub.places import models_dir
from gguf_runtime.hub.puller import Progress, pull
from gguf_runtime.hub.resolve import resolve

__all__ = ["Entry", "Progress", "entries", "find", "models_dir", "pull", "resolve"]
