"""Models by name: the catalog, the places where files live, and pulling them."""
