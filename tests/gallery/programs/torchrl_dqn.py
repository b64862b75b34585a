"""torchrl's DQNTrainer with its progress bar and its saves: torchrl_dqn.py [--leak: a hook keeps each batch]."""

import sys

import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, RewardSum, StepCounter, TransformedEnv
from torchrl.modules import MLP, EGreedyModule, QValueModule
from torchrl.objectives import DQNLoss, SoftUpdate
from torchrl.trainers.algorithms import DQNTrainer

FRAMES, BATCH = 60_000, 200


class Batches:
    """What a user writes to look at the batches later."""

    def __init__(self):
        self.seen = []

    def __call__(self, batch):
        self.seen.append(torch.cat([batch["observation"]] * 200))
        return batch


torch.manual_seed(0)
env = TransformedEnv(GymEnv("CartPole-v1"))
env.append_transform(RewardSum())
env.append_transform(StepCounter())
values = TensorDictModule(MLP(4, 2, num_cells=[64, 64]), in_keys=["observation"], out_keys=["action_value"])
policy = TensorDictSequential(values, QValueModule(spec=env.action_spec))
greedy = EGreedyModule(env.action_spec, annealing_num_steps=FRAMES)
loss = DQNLoss(policy, action_space=env.action_spec, delay_value=True)
trainer = DQNTrainer(
    collector=Collector(
        env, TensorDictSequential(policy, greedy), frames_per_batch=BATCH, total_frames=FRAMES, init_random_frames=400
    ),
    total_frames=FRAMES,
    frame_skip=1,
    optim_steps_per_batch=4,
    loss_module=loss,
    optimizer=torch.optim.Adam(loss.parameters(), 1e-3),
    replay_buffer=TensorDictReplayBuffer(storage=LazyTensorStorage(20_000), batch_size=64),
    target_net_updater=SoftUpdate(loss, eps=0.99),
    greedy_module=greedy,
    enable_logging=False,
    save_trainer_interval=5_000,
    save_trainer_file="trainer.pt",
)
if "--leak" in sys.argv:
    trainer.register_op("batch_process", Batches())
trainer.train()
