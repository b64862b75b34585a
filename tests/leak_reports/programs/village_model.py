import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

LOCI = 1000


class Person:
    count = 0

    def __init__(self, genome, place, mother=None, father=None):
        Person.count += 1
        self.ident = Person.count
        self.genome = genome
        self.place = place
        self.mother = mother
        self.father = father
        self.age = 0
        self.stock = 4.0
        self.skill = None

    def related(self, other):
        mine = {id(self.mother), id(self.father)} - {id(None)}
        return bool(mine & {id(other), id(other.mother), id(other.father)})


class Village:
    def __init__(self, size=64, people=420, capacity=650, seed=2):
        self.rng = np.random.default_rng(seed)
        self.size = size
        self.capacity = capacity
        self.grain = self.rng.random((size, size)) * 4
        self.effects = (self.rng.standard_normal((2 * LOCI, 400)) / np.sqrt(LOCI)).astype(np.float32)
        self.people = [
            Person(self.rng.integers(0, 2, (2, LOCI)).astype(np.float32), self.rng.integers(size, size=2))
            for _ in range(people)
        ]
        for person in self.people:
            person.age = int(self.rng.integers(5, 30))

    def gamete(self, person):
        cut = np.sort(self.rng.integers(0, LOCI, 3))
        side = np.zeros(LOCI, dtype=int)
        for c in cut:
            side[c:] ^= 1
        g = person.genome[side, np.arange(LOCI)]
        flips = self.rng.integers(LOCI, size=2)
        g[flips] = 1 - g[flips]
        return g

    def express(self):
        genomes = np.stack([p.genome.ravel() for p in self.people])
        traits = np.tanh((genomes - genomes.mean(0)) @ self.effects)
        skills = np.linalg.norm(traits[:, :200], axis=1) - 0.2 * np.linalg.norm(traits[:, 200:], axis=1)
        for person, skill in zip(self.people, skills - skills.mean()):
            person.skill = skill

    def harvest(self):
        self.grain = np.minimum(self.grain + 0.18 * (1 + np.roll(self.grain, 1, 0) / 8), 4)
        for person in self.people:
            person.place = (person.place + self.rng.integers(-2, 3, 2)) % self.size
            x, y = person.place
            got = self.grain[x, y] * (0.6 + 0.2 * np.tanh(person.skill))
            self.grain[x, y] -= got
            person.stock += got - 0.9
            person.age += 1

    def marry(self):
        adults = [p for p in self.people if p.age > 6 and p.stock > 2]
        self.rng.shuffle(adults)
        room = max(0, self.capacity - len(self.people))
        for a, b in list(zip(adults[::2], adults[1::2]))[: min(room, 40)]:
            if not a.related(b):
                a.stock -= 1
                b.stock -= 1
                genome = np.stack([self.gamete(a), self.gamete(b)])
                self.people.append(Person(genome, a.place.copy(), mother=a, father=b))

    def bury(self):
        risk = self.rng.random(len(self.people))
        self.people = [p for p, r in zip(self.people, risk) if p.stock > 0 and r > 0.002 * np.exp(p.age / 7.0)]


def main(years=4500):
    village = Village()
    for year in range(1, years + 1):
        village.express()
        village.harvest()
        village.marry()
        village.bury()
        if year % 4 == 0:
            ages = np.mean([p.age for p in village.people])
            skill = np.max([p.skill if p.skill is not None else 0 for p in village.people])
            print(
                f"year {year}: {len(village.people)} people, mean age {ages:.1f}, born {Person.count},"
                f" best skill {skill:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
