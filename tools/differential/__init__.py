"""Compares kcore with Apache Kafka 4.3.1: sends the same random requests to both servers, and compares every response.

    python -m tools.differential --area groups --seeds 0-999

Each seed gives one program: a list of steps, which are requests of a few clients with valid and wrong arguments. A
    program that finds a difference is shortened as long as the difference remains, and printed. Differences that
    `docs/differences.md` describes are counted separately (`known.py`). With `--logs`, the records that a program
    without a difference leaves in the logs are compared, too (`records.py`). Several programs run at the same time,
    because a program waits most of the time. With `--restart`, all programs that run at the same time stop in their
    middle until both servers have restarted. Differences are then printed without shortening the program. `make
    differential` runs all areas. Apache Kafka is started from Maven's libraries, or `--kafka HOST:PORT` names a broker
    with the settings of `tests/apache/broker.py`.
"""
