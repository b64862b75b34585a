import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np


class CellMeta(type):
    def __new__(mcs, name, bases, attrs):
        cls = super().__new__(mcs, name, bases, attrs)
        cls._subclasses = []
        for base in cls.__mro__[1:]:
            if isinstance(base, CellMeta):
                base._subclasses.append(cls)
        return cls


class Cell(metaclass=CellMeta):
    width = 64
    activation = staticmethod(np.tanh)

    def __init__(self, ridge):
        self.ridge = ridge
        self.coef = None

    def features(self, x):
        return self.activation(x @ self.projection + self.bias)

    def fit(self, x, y):
        h = self.features(x)
        gram = h.T @ h + self.ridge * np.eye(h.shape[1])
        self.coef = np.linalg.solve(gram, h.T @ y)
        return self

    def error(self, x, y):
        return float(np.mean((self.features(x) @ self.coef - y) ** 2))


ACTIVATIONS = {
    "tanh": np.tanh,
    "sin": np.sin,
    "relu": lambda z: np.maximum(z, 0),
    "gauss": lambda z: np.exp(-z * z),
}


def build_cell(index, gene, dim, rng):
    attrs = {
        "width": gene["width"],
        "activation": staticmethod(ACTIVATIONS[gene["act"]]),
        "projection": rng.standard_normal((dim, gene["width"])) * gene["scale"],
        "bias": rng.uniform(-1, 1, gene["width"]),
    }
    return type(Cell)(f"Cell{index}", (Cell,), attrs)


def mutate(gene, rng):
    child = dict(gene)
    child["width"] = int(np.clip(gene["width"] + rng.integers(-24, 25), 96, 320))
    child["scale"] = float(gene["scale"] * np.exp(0.2 * rng.standard_normal()))
    if rng.random() < 0.2:
        child["act"] = rng.choice(list(ACTIVATIONS))
    return child


def main(generations=150, offspring=10, dim=160):
    rng = np.random.default_rng(12)
    x = rng.standard_normal((5400, dim))
    y = np.sin(x[:, :8]).sum(1) + 0.3 * x[:, 8] * x[:, 9]
    train, test = slice(0, 4400), slice(4400, None)
    parent, best, index = {"width": 200, "scale": 0.1, "act": "tanh"}, np.inf, 0
    for gen in range(1, generations + 1):
        for _ in range(offspring):
            gene = mutate(parent, rng)
            index += 1
            cell = build_cell(index, gene, dim, rng)(ridge=1e-2).fit(x[train], y[train])
            err = cell.error(x[test], y[test])
            if err < best:
                best, parent = err, gene
        print(f"generation {gen}/{generations} best {best:.4f} width {parent['width']} act {parent['act']}", flush=True)


if __name__ == "__main__":
    main()
