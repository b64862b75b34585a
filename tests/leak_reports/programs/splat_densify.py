import torch

torch.set_num_threads(1)


class Splats:
    def __init__(self, count):
        self.params = {
            "means": torch.nn.Parameter(torch.rand(count, 2)),
            "scales": torch.nn.Parameter(torch.full((count, 1), -3.0)),
            "colors": torch.nn.Parameter(torch.randn(count, 48) * 0.1),
        }
        groups = [{"params": [p], "lr": 5e-3, "name": n} for n, p in self.params.items()]
        self.optimizer = torch.optim.Adam(groups)

    def render(self, pix):
        means, scales, colors = self.params["means"], self.params["scales"], self.params["colors"]
        d2 = torch.cdist(pix, means).pow(2)
        w = torch.exp(-0.5 * d2 / torch.exp(2 * scales).T)
        return w @ colors

    def resample(self):
        """Move the weakest splats next to strong ones; the count stays the same."""
        with torch.no_grad():
            mass = self.params["colors"].abs().sum(1)
            order = mass.argsort()
            k = max(1, len(order) // 50)
            source = torch.arange(len(order))
            source[order[:k]] = order[-k:]
        for group in self.optimizer.param_groups:
            old = group["params"][0]
            state = self.optimizer.state.get(old, {})
            new = torch.nn.Parameter(old.detach()[source].clone())
            if group["name"] == "means":
                new.data[order[:k]] += 0.01 * torch.randn(k, 2)
            moved = {key: v[source].clone() if v.dim() else v for key, v in state.items()}
            group["params"][0] = new
            self.optimizer.state[new] = moved
            self.params[group["name"]] = new


def target_image(pix):
    freq = torch.arange(1, 49).float()
    return torch.sin(pix[:, :1] * freq) * torch.cos(pix[:, 1:] * freq.flip(0) * 0.5)


def main(iterations=2700, refine_every=8):
    torch.manual_seed(1)
    splats = Splats(2000)
    for it in range(1, iterations + 1):
        pix = torch.rand(256, 2)
        loss = (splats.render(pix) - target_image(pix)).pow(2).mean()
        splats.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        splats.optimizer.step()
        if it % refine_every == 0:
            splats.resample()
        if it % 40 == 0:
            print(f"iter {it}/{iterations} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
