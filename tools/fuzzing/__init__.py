"""The fuzzer: generates valid values from the schemas, mutates them, and passes them to decoders of untrusted bytes."""
