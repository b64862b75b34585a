"""Per-sample gradient norms through module hooks (in the way of DP-SGD libraries)."""

import time

import torch
from torch import nn

torch.set_num_threads(1)


class GradNormEngine:
    """Captures inputs on forward, turns them into per-sample norms on backward."""

    def __init__(self, model):
        self.model = model
        self.norms = {}
        self.handles = []
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear):
                layer.layer_name = name
                self.handles.append(layer.register_forward_hook(self.capture_activations))
                self.handles.append(layer.register_full_backward_hook(self.capture_backprops))

    def capture_activations(self, layer, inputs, output):
        if not layer.training:
            return
        if not hasattr(layer, "activations"):
            layer.activations = []
        layer.activations.append(inputs[0].detach())

    def capture_backprops(self, layer, grad_input, grad_output):
        a = layer.activations.pop()
        self.norms[layer.layer_name] = a.norm(dim=1) * grad_output[0].norm(dim=1)

    def mean_norm(self):
        return torch.stack([n.mean() for n in self.norms.values()]).mean().item()


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 512)
        self.fc2 = nn.Linear(512, 256)
        self.fc3 = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def make_batch(protos, n=128):
    y = torch.randint(0, 10, (n,))
    return protos[y] + torch.randn(n, 784), y


def train_one(model, engine, optimizer, batch):
    x, y = batch
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), engine.mean_norm()


def evaluate(model, protos, batches=4):
    hits = 0
    with torch.no_grad():
        for _ in range(batches):
            x, y = make_batch(protos)
            hits += (model(x).argmax(1) == y).sum().item()
            time.sleep(0.15)
    return hits / (batches * 128)


def main():
    protos = torch.randn(10, 784) * 0.15
    model = DigitNet()
    engine = GradNormEngine(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    train_batches = [make_batch(protos) for _ in range(24)]
    accuracies = []
    for epoch in range(140):
        for i in range(3):
            loss, norm = train_one(model, engine, optimizer, train_batches[(3 * epoch + i) % 24])
            time.sleep(0.1)
        accuracies.append(evaluate(model, protos))
        print(f"epoch {epoch} loss {loss:.4f} grad_norm {norm:.3f} val_acc {accuracies[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
