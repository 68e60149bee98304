"""Compares kcore with Apache Kafka 4.3.1: sends the same random requests to both servers, and compares every response.

    python -m tools.differential --area groups --seeds 0-999

Each seed generates one test program: a list of steps. A step is a request of one of a few clients, with valid or
invalid arguments. If the responses to a test program differ, the tool removes steps as long as the difference remains,
and prints the shortened test program. It counts the documented differences separately (`known.py`).

With `--logs`, the tool also compares the records in the logs after a test program without a difference (`records.py`).
Several test programs run at the same time, because a test program waits most of the time. With `--restart`, each test
program pauses at its middle step until both servers have restarted; the tool then does not shorten test programs. `make
differential` runs all areas except `timeouts`, `compaction`, `expiry` and `share_logs`. The test programs of these
areas pause for seconds, and run only if `--area` names them. The tool starts Apache Kafka from Maven's libraries.
`--set NAME=VALUE` changes a setting of both servers. `--kafka HOST:PORT` names a running broker instead; it must have
the settings of `tests/apache/broker.py`.
"""
