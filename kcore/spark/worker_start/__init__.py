"""A folder for the module path of local Spark workers; its `sitecustomize` shortens their start."""
