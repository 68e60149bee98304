"""Frequent bugs of programs that use Kafka, each with a fixed program and a test that only the fixed one passes.

Each module has the functions `buggy` and `fixed`, which are programs of the same signature. `check` tests such a
program on a `kcore.testing.Broker`. `SYMPTOM` is a pattern of the error by which `check` fails for `buggy`.
docs/testing-kafka-code.md explains the modules.
"""
