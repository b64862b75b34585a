import time

import torch

torch.set_num_threads(1)
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

N_EPISODES = 34
PERIOD = 4.0
VOCAB = 512
TURN_TOKENS = 96
REPLY_TOKENS = 16


def build_policy():
    cfg = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=1024,
        max_position_embeddings=16384,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(cfg)


class PersonaPrompt:
    """Holds the persona text and its precomputed attention prefix."""

    def __init__(self, model, tokens):
        self.tokens = tokens
        self.prefix = DynamicCache(config=model.config)
        with torch.no_grad():
            model(input_ids=tokens, past_key_values=self.prefix, use_cache=True)


class DialogTrainer:
    def __init__(self, model):
        self.model = model
        self.persona = PersonaPrompt(model, torch.randint(0, VOCAB, (1, 64)))
        self.value_head = torch.nn.Linear(VOCAB, 1)
        self.opt = torch.optim.Adam(self.value_head.parameters(), lr=1e-3)
        self.user_turns = [torch.randint(0, VOCAB, (1, TURN_TOKENS)) for _ in range(400)]
        self.returns = []

    @torch.no_grad()
    def reply(self, turn):
        cache = self.persona.prefix
        out = self.model(input_ids=turn, past_key_values=cache, use_cache=True)
        last = out.logits[0, -1]
        draws = torch.distributions.Categorical(logits=last).sample((REPLY_TOKENS,))
        out = self.model(input_ids=draws[None], past_key_values=cache, use_cache=True)
        return draws.tolist(), out.logits[0]

    def reward(self, tokens):
        return len(set(tokens)) / len(tokens) - sum(t % 7 == 0 for t in tokens) * 0.1

    def episode(self, i):
        tokens, logits = self.reply(self.user_turns[i % len(self.user_turns)])
        r = self.reward(tokens)
        value = self.value_head(logits).mean()
        loss = (value - r) ** 2
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.returns.append(r)
        return loss.item(), r


def main():
    trainer = DialogTrainer(build_policy())
    for i in range(N_EPISODES):
        t0 = time.time()
        loss, r = trainer.episode(i)
        print(f"episode {i + 1}/{N_EPISODES} value_loss {loss:.4f} reward {r:.3f}", flush=True)
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    print(f"mean reward {sum(trainer.returns) / len(trainer.returns):.4f}", flush=True)


if __name__ == "__main__":
    main()
