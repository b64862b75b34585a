"""Word2Vec on a stream of short posts: vocabulary survey first, then training."""

import random
import time

from gensim.models import Word2Vec


class PostStream:
    """Yields tokenised posts: common words, plus links and mentions as they come."""

    def __init__(self, shards=46, posts_per_shard=12000, seed=3, pace=3.0):
        self.shards, self.posts_per_shard, self.pace = shards, posts_per_shard, pace
        self.rng = random.Random(seed)
        self.common = [f"word{i}" for i in range(3000)]
        self.hosts = ["t.example", "pics.example", "news.example", "vid.example"]
        self.shard_sizes = []

    def link(self):
        return "https://%s/%x/status/%032x" % (
            self.rng.choice(self.hosts),
            self.rng.getrandbits(40),
            self.rng.getrandbits(128),
        )

    def post(self):
        r = self.rng
        tokens = [self.common[int(r.random() ** 2 * 3000)] for _ in range(4)]
        for _ in range(4):
            tokens.append(self.link())
        tokens.append("@user%d" % r.getrandbits(36))
        return tokens

    def __iter__(self):
        due = time.time()
        chunk = self.posts_per_shard // 20
        for shard in range(self.shards):
            seen = 0
            for part in range(20):
                for _ in range(chunk):
                    tokens = self.post()
                    seen += len(tokens)
                    yield tokens
                due += self.pace / 20
                time.sleep(max(0.0, due - time.time()))
            self.shard_sizes.append(seen)
            print(
                f"shard {shard} posts {(shard + 1) * self.posts_per_shard} tokens {sum(self.shard_sizes)}", flush=True
            )


class EmbeddingJob:
    def __init__(self):
        self.corpus = PostStream()
        self.model = Word2Vec(vector_size=32, window=3, min_count=5, workers=1)
        self.stopwords = [f"word{i}" for i in range(40)]
        self.probe_pairs = [("word50", f"word{i}") for i in range(51, 80)]

    def survey(self):
        self.model.build_vocab(self.corpus)
        print(f"kept {len(self.model.wv)} words", flush=True)

    def train(self, epochs=3):
        small = PostStream(shards=1, posts_per_shard=2000, seed=9, pace=0.5)
        for epoch in range(epochs):
            self.model.train(list(small), total_examples=2000, epochs=1)
            score = sum(self.model.wv.similarity(a, b) for a, b in self.probe_pairs) / len(self.probe_pairs)
            print(f"epoch {epoch} probe {score:.4f}", flush=True)


if __name__ == "__main__":
    job = EmbeddingJob()
    job.survey()
    job.train()
