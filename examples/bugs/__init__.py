"""Frequent bugs of programs that use Kafka. Each bug has a fixed program, and a test that only the fixed program
passes.

Each module has the functions `buggy` and `fixed`, which are programs of the same signature. `check` tests one of these
programs on a `kcore.testing.Broker`. `SYMPTOM` is a pattern of the error by which `check` fails for `buggy`.
docs/testing-kafka-code.md explains the modules.
"""
