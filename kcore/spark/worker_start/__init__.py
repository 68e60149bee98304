"""A folder for the module path of local Spark workers; its `sitecustomize` shortens the start of the workers."""
