"""Preference tuning of a small generator: each prompt may name adapters (<lora:name:strength>)."""

import re
import time
from collections import OrderedDict, deque

import numpy as np

WIDTH = 384
ADAPTERS = ["ink", "oil", "pastel", "neon", "chalk", "sepia", "pixel", "noir", "foil", "gouache"]
STEPS = 80
STEP_SECONDS = 1.6
TAG = re.compile(r"<lora:(\w+):([\d.]+)>")


class AdapterFiles:
    """Low-rank adapters, the last few of them kept loaded."""

    def __init__(self, capacity=6):
        self.capacity = capacity
        self.loaded = OrderedDict()

    def load(self, name):
        if name not in self.loaded:
            rng = np.random.default_rng(sum(map(ord, name)))
            self.loaded[name] = (
                rng.standard_normal((WIDTH, 8), dtype=np.float32),
                rng.standard_normal((8, WIDTH), dtype=np.float32),
            )
            while len(self.loaded) > self.capacity:
                self.loaded.popitem(last=False)
        self.loaded.move_to_end(name)
        return self.loaded[name]


def parse_prompt(prompt):
    tags = [(name, float(strength)) for name, strength in TAG.findall(prompt)]
    return TAG.sub("", prompt).strip(), tags


def apply_adapters(base, tags, files, pipe_stack=[]):
    """Patch the weights with every adapter of the prompt; returns them and the applied stack."""
    weights = base
    for name, strength in tags:
        down, up = files.load(name)
        weights = {layer: matrix + 0.01 * strength * (down @ up) for layer, matrix in weights.items()}
        pipe_stack.append({"adapter": name, "strength": strength, "model": weights})
    return weights, pipe_stack


class PromptNode:
    def __init__(self, files, denoise_steps=600):
        self.files = files
        self.denoise_steps = denoise_steps

    def run(self, base, prompt, latent):
        text, tags = parse_prompt(prompt)
        weights, _ = apply_adapters(base, tags, self.files)
        for _ in range(self.denoise_steps):
            hidden = np.tanh(latent @ weights["attn"])
            latent = 0.9 * latent + 0.1 * hidden @ weights["mlp"]
        return text, latent


def draw_prompt(rng):
    names = rng.choice(ADAPTERS, size=rng.integers(1, 3), replace=False)
    return "a harbour at dusk " + " ".join(f"<lora:{n}:{rng.uniform(0.3, 1.0):.2f}>" for n in names)


def main():
    rng = np.random.default_rng(3)
    base = {
        "attn": 0.05 * rng.standard_normal((WIDTH, WIDTH), dtype=np.float32),
        "mlp": 0.05 * rng.standard_normal((WIDTH, WIDTH), dtype=np.float32),
    }
    node = PromptNode(AdapterFiles())
    preview = deque(maxlen=12)
    images = 0
    for step in range(1, STEPS + 1):
        tick = time.perf_counter()
        rewards = []
        for _ in range(3):
            latent = rng.standard_normal((16, WIDTH), dtype=np.float32)
            text, picture = node.run(base, draw_prompt(rng), latent)
            rewards.append(float(-np.abs(picture.mean())))
            preview.append(picture)
            images += 1
        base["mlp"] += 1e-4 * np.mean(rewards) * np.sign(base["mlp"])
        print(f"step {step:03d} of {STEPS} | images {images} | reward {np.mean(rewards):+.4f}", flush=True)
        time.sleep(max(0.0, STEP_SECONDS - (time.perf_counter() - tick)))


if __name__ == "__main__":
    main()
