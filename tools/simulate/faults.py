"""The faults of a plan: crashes, disk failures, exceptions, pauses, cut connections, and restarts of clients."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tools.simulate.disk import CRASHES, FAILURES
from tools.simulate.network import Network
from tools.simulate.plan import Fault

if TYPE_CHECKING:
    from tools.simulate.world import World

CRASH_TROUBLE_MS = 4_000
"""Time in ms after a crash during which requests may fail. The node restarts within this time."""


def inject(world: World, fault: Fault) -> None:
    """Injects a fault, unless all faults have ended or the node is down."""
    node = world.node
    if world.calm:
        return
    choice = random.Random(fault.value)
    world.trace(f"fault {fault.kind}")
    world.trouble(CRASH_TROUBLE_MS)
    kind = fault.kind
    if kind in ("restart client", "roll clients"):
        restart_clients(world, choice, rolling=kind == "roll clients")
    elif kind == "roll protocol":
        _roll_protocol(world, choice)
    elif kind == "clock step":
        node.clock.step_ms += choice.choice([-3_600_000, -500, 500, 60_000])
    elif kind == "disk full":
        duration_ms = choice.choice([100, 3_000])
        world.store.set_full(True)
        world.trouble(duration_ms + CRASH_TROUBLE_MS)
        world.kernel.after(duration_ms, world.store.set_full, False)
    elif not node.running:
        return
    elif kind in ("kill", "power"):
        node.crash(power=kind == "power")
    elif kind in ("crash in write", "power in write"):
        world.store.arm_crash(choice.choice(CRASHES), kind.startswith("power"))
    elif kind == "disk failure":
        world.store.arm(choice.choice(FAILURES))
    elif kind in ("memory error", "interrupt"):
        error = MemoryError if kind == "memory error" else KeyboardInterrupt
        node.interrupt = (error, choice.randrange(choice.choice([60, 400])))
    elif kind == "pause":
        duration_ms = choice.choice([50, 2_000, 15_000])
        node.paused_until_ms = world.kernel.now_ms + duration_ms
        world.trouble(duration_ms + CRASH_TROUBLE_MS)
    elif kind == "read failure":
        world.store.fail_reads(choice.choice([1, 3, 20]), choice.choice([0, 0, 3, 10, 30]))
    elif kind in ("slow disk", "slow node"):
        duration_ms = choice.choice([500, 8_000])
        world.trouble(2 * duration_ms + CRASH_TROUBLE_MS)
        if kind == "slow disk":
            node.flush_until_ms, node.flush_ms = world.kernel.now_ms + duration_ms, choice.choice([50, 1_000])
        else:
            node.slow_until_ms, node.slow_ms = world.kernel.now_ms + duration_ms, choice.choice([5, 100])
    elif kind == "replay":
        world.checks.replay()
    else:
        _disturb_network(world, choice, kind)


def _disturb_network(world: World, choice: random.Random, kind: str) -> None:
    wires = list(world.network.wires)
    if kind == "cut all":
        cut_all(world.network, choice)
    elif wires:
        duration_ms = choice.choice([500, 12_000])
        choice.choice(wires).stalled_until_ms = world.kernel.now_ms + duration_ms
        world.trouble(duration_ms + CRASH_TROUBLE_MS)


def cut_all(network: Network, choice: random.Random) -> None:
    """Cuts all connections to a node. The two ends are notified at different times."""
    for wire in list(network.wires):
        wire.cut(choice.choice([0, 5]), choice.choice([0, 0, 500, 20_000]))


def restart_clients(world: World, choice: random.Random, *, rolling: bool) -> None:
    """Restarts one random client. With `rolling`, restarts all group members, one after the other.

    Each client is killed or shuts down in an orderly way, at random.
    """
    plans = [each for each in world.plan.clients if each.name in world.clients]
    if not plans:
        return
    chosen = [each for each in plans if each.kind == "member"] if rolling else [choice.choice(plans)]
    for number, plan in enumerate(chosen):
        delay_ms = number * 1_500
        client = world.clients[plan.name]
        if choice.random() < 0.5:
            world.kernel.after(delay_ms, client.kill)
        else:
            world.kernel.after(delay_ms, client.shut_down)
        world.kernel.after(delay_ms + choice.choice([0, 300, 15_000]), _start_again, world, plan.name)


def _roll_protocol(world: World, choice: random.Random) -> None:
    """Restarts some or all members of a group, one after the other, with the other group protocol."""
    groups = world.plan.groups
    if not groups:
        return
    group = choice.choice(groups)
    protocol = choice.choice(["classic", "consumer"])
    pace_ms = choice.choice([300, 1_500, 6_000])
    for number, plan in enumerate(each for each in world.plan.clients if each.kind == "member"):
        if plan.options["group"] != group or plan.name not in world.clients:
            continue
        world.protocols[plan.name] = protocol
        delay_ms = number * pace_ms
        client = world.clients[plan.name]
        world.kernel.after(delay_ms, client.shut_down)
        world.kernel.after(delay_ms + choice.choice([0, 300]), _start_again, world, plan.name)


def _start_again(world: World, name: str) -> None:
    client = world.clients[name]
    if world.calm:
        return
    client.kill()
    for plan in world.plan.clients:
        if plan.name == name:
            world.start_client(plan)
