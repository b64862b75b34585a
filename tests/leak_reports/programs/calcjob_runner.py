"""Run a queue of small calculation jobs through an asyncio engine with pooled transports."""

import asyncio
import contextvars
import itertools

import numpy as np

PROCESS_STACK = contextvars.ContextVar("process_stack", default=())
IDLE_TIMEOUT = 900.0


def current_process():
    stack = PROCESS_STACK.get()
    return stack[-1] if stack else None


class Transport:
    """A connection to one compute host, closed after it has been idle for a while."""

    def __init__(self, loop, host):
        self.loop, self.host = loop, host
        self.open, self.last_used = True, loop.time()

    def touch(self):
        self.open, self.last_used = True, self.loop.time()
        self.loop.call_later(IDLE_TIMEOUT, self.close_if_idle)

    def close_if_idle(self):
        if self.loop.time() - self.last_used >= IDLE_TIMEOUT:
            self.open = False

    async def upload(self, payload):
        self.touch()
        await asyncio.sleep(0.05)
        return payload.nbytes

    async def retrieve(self, size):
        self.touch()
        await asyncio.sleep(0.05)
        return np.random.default_rng(size).standard_normal(size)


class TransportPool:
    def __init__(self, hosts):
        loop = asyncio.get_running_loop()
        self.transports = [Transport(loop, host) for host in hosts]

    def request(self, pk):
        return self.transports[pk % len(self.transports)]


class CalcJob:
    def __init__(self, pk, pool, rng):
        self.pk, self.pool = pk, pool
        self.structure = rng.standard_normal((420, 420))
        self.energy = None

    async def run(self):
        token = PROCESS_STACK.set(PROCESS_STACK.get() + (self,))
        try:
            transport = self.pool.request(self.pk)
            sent = await transport.upload(self.structure)
            await asyncio.sleep(0.3)
            forces = await transport.retrieve(sent // 4000)
            assert current_process() is self
            self.energy = float(np.trace(self.structure)) + float(forces.mean())
        finally:
            PROCESS_STACK.reset(token)
        return self.energy


async def engine(batches=100, width=3):
    rng = np.random.default_rng(11)
    pool = TransportPool(["daint", "eiger", "local"])
    pks = itertools.count(1)
    lowest = float("inf")
    for batch in range(1, batches + 1):
        jobs = [CalcJob(next(pks), pool, rng) for _ in range(width)]
        energies = await asyncio.gather(*(asyncio.create_task(job.run()) for job in jobs))
        lowest = min(lowest, *energies)
        if batch % 4 == 0:
            print(
                f"batch {batch:4d}/{batches}  finished {jobs[-1].pk:5d} jobs  "
                f"mean energy {np.mean(energies):9.3f}  lowest {lowest:9.3f}",
                flush=True,
            )
        await asyncio.sleep(0.8)


if __name__ == "__main__":
    asyncio.run(engine())
