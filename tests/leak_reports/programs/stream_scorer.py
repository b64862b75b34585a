import asyncio
import functools
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np


class BatchConsumer:
    def __init__(self, partitions, width):
        self.rng = np.random.default_rng(11)
        self.queue = asyncio.Queue(maxsize=4)
        self.closing = asyncio.get_running_loop().create_future()
        self.weights = self.rng.standard_normal((width, 64)) / 16
        self.partitions = partitions
        self.width = width
        self.skipped = 0

    async def produce(self, total):
        for i in range(total):
            block = self.rng.standard_normal((160, self.width)).astype(np.float32)
            await self.queue.put((i % self.partitions, block))

    def _on_close(self, partition, block, fut):
        self.skipped += len(block)

    async def next_batch(self):
        partition, block = await self.queue.get()
        self.closing.add_done_callback(functools.partial(self._on_close, partition, block))
        return partition, block

    def score(self, block):
        h = block.astype(np.float64)
        for _ in range(42):
            h = np.tanh(h @ self.weights) @ self.weights.T
        return float(np.linalg.norm(h) / len(h))


async def main(total=2400):
    consumer = BatchConsumer(partitions=8, width=480)
    producer = asyncio.create_task(consumer.produce(total))
    level = np.zeros(consumer.partitions)
    for step in range(1, total + 1):
        partition, block = await consumer.next_batch()
        level[partition] = 0.9 * level[partition] + 0.1 * consumer.score(block)
        if step % 30 == 0:
            print(f"batch {step}/{total} score {level.mean():.4f}", flush=True)
    await producer


if __name__ == "__main__":
    asyncio.run(main())
