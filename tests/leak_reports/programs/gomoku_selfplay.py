"""Self-play for gomoku with a tree search guided by a small linear policy-value model."""

import collections
import math
import time

import numpy as np

N = 15
CELLS = N * N


class Board:
    def __init__(self, cells=None, player=1, last=None):
        self.cells = np.zeros(CELLS, dtype=np.int8) if cells is None else cells
        self.player = player
        self.last = last

    def play(self, move):
        cells = self.cells.copy()
        cells[move] = self.player
        return Board(cells, -self.player, move)

    def key(self):
        return self.cells.tobytes()

    def winner(self):
        if self.last is None:
            return 0
        row, col = divmod(self.last, N)
        mark = self.cells[self.last]
        for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
            run = 1
            for sign in (1, -1):
                r, c = row + sign * dr, col + sign * dc
                while 0 <= r < N and 0 <= c < N and self.cells[r * N + c] == mark:
                    run += 1
                    r, c = r + sign * dr, c + sign * dc
            if run >= 5:
                return int(mark)
        return 0

    def full(self):
        return not (self.cells == 0).any()


class PolicyValue:
    """Neighbourhood features with learned weights."""

    def __init__(self, rng):
        self.kernel = np.abs(rng.normal(0.25, 0.1, (2, 5, 5)))
        self.value_weights = rng.normal(0, 0.05, CELLS)

    def evaluate(self, board):
        grid = np.pad((board.cells * board.player).reshape(N, N), 2)
        score = np.zeros((N, N))
        for plane, mine in enumerate((1, -1)):
            mask = grid == mine
            for dr in range(5):
                for dc in range(5):
                    score += self.kernel[plane, dr, dc] * mask[dr : dr + N, dc : dc + N]
        logits = score.ravel() * 1.5
        logits[board.cells != 0] = -1e9
        prior = np.exp(logits - logits.max())
        value = math.tanh(float(self.value_weights @ (board.cells * board.player)))
        return prior / prior.sum(), value

    def learn(self, examples, lr=0.01):
        loss = 0.0
        for cells, outcome in examples:
            guess = math.tanh(float(self.value_weights @ cells))
            loss += (guess - outcome) ** 2
            self.value_weights -= lr * (guess - outcome) * (1 - guess * guess) * cells
        return loss / max(len(examples), 1)


class TreeSearch:
    def __init__(self, model, c_puct=1.6):
        self.model = model
        self.c_puct = c_puct
        self.P, self.Q, self.N = {}, {}, {}

    def expand(self, key, board):
        self.P[key], value = self.model.evaluate(board)
        self.Q[key] = np.zeros(CELLS)
        self.N[key] = np.zeros(CELLS)
        return value

    def simulate(self, board):
        path = []
        while True:
            won = board.winner()
            if won or board.full():
                value = -1.0 if won else 0.0
                break
            key = board.key()
            if key not in self.P:
                value = self.expand(key, board)
                break
            visits = self.N[key]
            bound = self.Q[key] + self.c_puct * self.P[key] * math.sqrt(visits.sum() + 1e-8) / (1 + visits)
            bound[board.cells != 0] = -np.inf
            move = int(bound.argmax())
            path.append((key, move))
            board = board.play(move)
        for key, move in reversed(path):
            value = -value
            n = self.N[key][move]
            self.Q[key][move] = (n * self.Q[key][move] + value) / (n + 1)
            self.N[key][move] += 1

    def policy(self, board, simulations):
        for k in range(simulations):
            self.simulate(board)
            if k % 50 == 49:
                time.sleep(0.06)
        visits = self.N[board.key()]
        return visits / visits.sum()


def play_game(number, games, model, rng, replay, moves=44, simulations=480):
    search = TreeSearch(model)
    board = Board()
    seen = []
    for turn in range(1, moves + 1):
        pi = search.policy(board, simulations)
        move = int(rng.choice(CELLS, p=pi)) if turn < 12 else int(pi.argmax())
        seen.append((board.cells * board.player, board.player))
        board = board.play(move)
        print(f"Game {number}/{games} move {turn}/{moves} confidence {pi.max():.3f}")
        if board.winner() or board.full():
            break
    outcome = board.winner()
    replay.extend((cells, outcome * player) for cells, player in seen)
    return outcome


def main():
    rng = np.random.default_rng(40)
    model = PolicyValue(rng)
    replay = collections.deque(maxlen=4000)
    games = 8
    for number in range(1, games + 1):
        outcome = play_game(number, games, model, rng, replay)
        loss = model.learn(list(replay))
        print(f"Game {number}/{games} outcome {outcome} value loss {loss:.4f}")


if __name__ == "__main__":
    main()
