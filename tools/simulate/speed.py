"""Measures the simulation speed for a node whose groups are stable: `python -m tools.simulate.speed`."""

from __future__ import annotations

import argparse

from tools.simulate.plan import NODE_SETTINGS, ClientPlan, Plan, TopicPlan
from tools.simulate.world import World


def _main() -> None:
    parser = argparse.ArgumentParser(description="Simulates groups of one member each, and measures the speed.")
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10, help="simulated time")
    options = parser.parse_args()
    settings = NODE_SETTINGS | {
        "group.consumer.heartbeat.interval.ms": "5000",
        "group.consumer.session.timeout.ms": "45000",
    }
    plan = Plan(1, settings=settings, topics={"orders": TopicPlan(1)})
    for number in range(options.groups):
        member = {"group": f"group{number}", "topics": ["orders"], "protocol": "consumer", "reads": False}
        plan.clients.append(ClientPlan("member", f"member{number}", member))
    world = World(plan)
    virtual_s, used_s = world.run_at_rest(round(options.minutes * 60_000))
    print(
        f"{options.groups} groups: {virtual_s:.0f} s simulated in {used_s:.2f} s of processor time, "
        f"{virtual_s / used_s:,.0f} times faster than real time; {world.kernel.steps:,} steps"
    )


if __name__ == "__main__":
    _main()
