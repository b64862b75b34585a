import time

import torch

torch.set_num_threads(1)

ITERS = 520
PERIOD = 0.25
DENSIFY_EVERY = 2
POINTS = 10000
VIEWS = [(0.1 * i, 0.05 * i) for i in range(64)]


class PointModel:
    """Coloured points in the plane, fitted to a picture; weak points are replaced while training."""

    def __init__(self, n):
        torch.manual_seed(0)
        self.xy = torch.nn.Parameter(torch.rand(n, 2))
        self.rgb = torch.nn.Parameter(torch.rand(n, 8) * 0.1)
        self.weight = torch.nn.Parameter(torch.ones(n, 1))

    def groups(self):
        return [
            {"params": [self.xy], "lr": 2e-3, "name": "xy"},
            {"params": [self.rgb], "lr": 1e-2, "name": "rgb"},
            {"params": [self.weight], "lr": 1e-2, "name": "weight"},
        ]


class Fitter:
    def __init__(self):
        self.model = PointModel(POINTS)
        self.opt = torch.optim.Adam(self.model.groups())
        self.pictures = [torch.rand(32, 32, 8) for _ in VIEWS]
        self.psnr = []
        self.replaced = 0

    def render(self, view, pick):
        xy = self.model.xy[pick] + torch.tensor(VIEWS[view])
        cell = ((xy.detach() % 1.0) * 31.999).long()
        shade = torch.sigmoid(self.model.weight[pick]) * torch.sin(xy.sum(1, keepdim=True))
        return cell, self.model.rgb[pick] * shade

    def fit_step(self, i):
        view = i % len(VIEWS)
        pick = torch.randint(0, POINTS, (1500,))
        cell, colour = self.render(view, pick)
        target = self.pictures[view][cell[:, 1], cell[:, 0]]
        loss = ((colour - target) ** 2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.psnr.append(float(-10 * torch.log10(loss.detach())))
        return loss.item()

    @torch.no_grad()
    def densify(self, drop=0.02):
        n_drop = int(POINTS * drop)
        order = self.model.weight[:, 0].argsort()
        keep = order[n_drop:]
        index = torch.cat([keep, keep[-n_drop:]])
        for group in self.opt.param_groups:
            old = group["params"][0]
            slots = self.opt.state.get(old, {})
            new = torch.nn.Parameter(old[index].clone())
            self.opt.state[new] = {
                k: v[index].clone() if torch.is_tensor(v) and v.dim() else v.clone() for k, v in slots.items()
            }
            group["params"][0] = new
            setattr(self.model, group["name"], new)
        self.replaced += n_drop


def main():
    fitter = Fitter()
    for i in range(ITERS):
        t0 = time.time()
        loss = fitter.fit_step(i)
        if i % DENSIFY_EVERY == 1:
            fitter.densify()
        if i % 4 == 3:
            print(
                f"iter {i + 1}/{ITERS} loss {loss:.5f} psnr {fitter.psnr[-1]:.2f} replaced {fitter.replaced}",
                flush=True,
            )
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    print("done", flush=True)


if __name__ == "__main__":
    main()
