"""The pictures of docs/semantics.md: what the kernels do with a few rows, drawn. `make pictures`."""
