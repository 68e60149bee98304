"""The fuzzer: valid values made from the schemas, mutated, and given to whatever reads bytes of strangers."""
