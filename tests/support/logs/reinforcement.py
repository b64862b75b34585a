"""Reinforcement learning and self-play."""

# ruff: noqa: E501 - lines as long as the programs print them
from __future__ import annotations

from collections.abc import Iterator

from support.logs import falling, log, n, tqdm


@log("iteration", None, None)
def rllib() -> Iterator[str]:
    yield "2022-05-01 12:00:00,123\tINFO trainer.py:2140 -- Your framework setting is 'tf'."
    for i in range(1, 13):
        yield f"agent_timesteps_total: {i * 4000}"
        yield f"counters:\n  num_agent_steps_sampled: {i * 4000}\n  num_agent_steps_trained: {i * 4000}"
        yield f"date: 2022-05-01_12-{i:02}-00\ndone: false\nepisode_len_mean: {20 + i}.4\nepisodes_this_iter: {190 - i * 7 % 50}"
        yield f"episodes_total: {190 * i - i * i % 31}\nexperiment_id: 0a1b2c3d\nhostname: gpu-1\niterations_since_restore: {i}"
        yield f"node_ip: 10.0.0.12\nnum_healthy_workers: 2\npid: 4711\ntime_this_iter_s: 3.{i}\ntime_total_s: {i * 3.4:.2f}"
        yield f"timestamp: {1651406400 + i * 4}\ntimesteps_total: {i * 4000}\ntraining_iteration: {n(i)}\ntrial_id: default"
        yield ""


@log("iteration", None, "end")
def ray_train() -> Iterator[str]:
    yield "Training started with configuration:"
    for i in range(1, 9):
        yield f"Training finished iteration {n(i)} at 2024-05-01 12:{i:02}:31. Total running time: {i}min 3s"
        yield "╭───────────────────────────────╮\n│ Training result               │\n├───────────────────────────────┤"
        yield f"│ checkpoint_dir_name           │\n│ time_this_iter_s      12.{i}31 │\n│ time_total_s          {i * 12}.31 │"
        yield f"│ training_iteration          {i} │\n│ loss                  {falling(i):.4f} │\n╰───────────────────────────────╯"


@log("step", None, "end")
def cleanrl() -> Iterator[str]:
    s = 0
    for i in range(40):
        s += 11 + i * 37 % 29
        yield f"global_step={n(s)}, episodic_return={10.0 + i * 7 % 30}"
        if i % 5 == 4:
            yield f"SPS: {1200 + i}"


@log("epoch", None, None)
def tianshou() -> Iterator[str]:
    for e in range(1, 7):
        yield "\r".join(
            tqdm(
                f"Epoch #{n(e)}", b, 10000, f", env_step={(e - 1) * 10000 + b}, len={100 + b % 9}, loss=0.31, rew=98.00"
            )
            for b in (0, 2500, 5000, 10000)
        )
        yield f"Epoch #{n(e)}: test_reward: {30.0 * e:.6f} ± 12.3, best_reward: 180.000000 ± 9.1 in #{e}"


@log("epoch", None, "end")
def spinningup() -> Iterator[str]:
    yield '\x1b[32;1mLogging data to /data/ppo/progress.txt\x1b[0m\n\x1b[36;1mSaving config:\n\x1b[0m\n{\n    "epochs":\t50,\n    "seed":\t0\n}'
    for e in range(9):
        yield "-" * 39
        yield f"|             Epoch | {n(e, '15d')} |"
        yield f"|      AverageEpRet | {20 + e * 3.1:15.3g} |\n|         EpLen | {20 + e:15d} |\n| TotalEnvInteracts | {(e + 1) * 4000:15d} |"
        yield f"|            LossPi | {falling(e):15.3g} |\n|              Time | {e * 7.1:15.3g} |"
        yield "-" * 39


@log("update", None, "end")
def baselines_ppo2() -> Iterator[str]:
    for u in range(1, 9):
        yield "-" * 42
        yield f"| eplenmean               | {20 + u:<12} |\n| eprewmean               | {20.1 + u:<12} |\n| fps                     | 1{u:<11} |"
        yield f"| misc/explained_variance | 0.{u:<10} |\n| misc/nupdates           | {n(u, '<12')} |\n| misc/serial_timesteps   | {u * 128:<12} |"
        yield f"| misc/time_elapsed       | {u * 0.7:<12.3} |\n| misc/total_timesteps    | {u * 1024:<12} |"
        yield "-" * 42


@log("iteration", None, "start")
def dopamine() -> Iterator[str]:
    for i in range(7):
        yield f"I0501 12:0{i}:00.123456 139 run_experiment.py:528] Starting iteration {n(i)}"
        yield "\r".join(
            f"Steps executed: {s} Episode length: {30 + s % 71} Return: {s % 9}.0" for s in range(100, 1000, 150)
        )
        yield f"I0501 12:0{i}:40.123456 139 run_experiment.py:428] Average undiscounted return per training episode: 2{i}.31"
        yield f"I0501 12:0{i}:40.123466 139 run_experiment.py:430] Average training steps per second: 912.{i}1"


@log("step", None, "end")
def brax() -> Iterator[str]:
    for k in range(12):
        yield f"num_steps: {n(k * 327680)} eval/episode_reward: {k * 301.3:.2f} training/sps: 81234.1 walltime: {k * 4.1:.1f}"


@log("episode", None, "end")
def acme() -> Iterator[str]:
    for e in range(1, 21):
        yield f"[Learner] Critic Loss = 0.{e:03} | Learner Steps = {e * 50} | Learner Walltime = {e * 1.3:.3f} | Policy Loss = -0.31"
        yield f"[Environment Loop] Episode Length = {200 - e % 3} | Episode Return = {e * 3.1:.3f} | Episodes = {n(e)} | Steps = {e * 200 - e % 3} | Steps Per Second = 812.{e}"


@log("step", None, "end")
def ml_agents() -> Iterator[str]:
    yield "Version information:\n  ml-agents: 0.30.0,\n  PyTorch: 1.8.2\n[INFO] Connected to Unity environment with package version 2.3.0"
    for s in range(12000, 180001, 12000):
        yield f"[INFO] 3DBall. Step: {n(s)}. Time Elapsed: {s / 400 + 12:.3f} s. Mean Reward: {s / 6e3:.3f}. Std of Reward: 0.812. Training."
        if s % 60000 == 0:
            yield f"[INFO] Exported results/run/3DBall/3DBall-{s}.onnx"


@log("epoch", 500, None)
def rl_games() -> Iterator[str]:
    yield "self.seed = 42\nStarted to train"
    for e in range(1, 26):
        yield f"fps step: {31000 + e * 77 % 500} fps step and policy inference: {30000 + e * 31 % 500} fps total: {20000 + e * 13 % 99} epoch: {n(e)}/500 frames: {(e - 1) * 65536}"
        if e % 10 == 0:
            yield f"saving next best rewards:  [{e * 3.1:.2f}]\n=> saving checkpoint 'runs/Ant/nn/Ant.pth'"


@log("iteration", 1500, None)
def rsl_rl() -> Iterator[str]:
    for i in range(15):
        yield "#" * 80
        yield f"                       \x1b[1m Learning iteration {n(i)}/1500 \x1b[0m                       "
        yield ""
        yield f"                       Computation: {51000 + i * 31} steps/s (collection: 1.{i}31s, learning 0.212s)"
        yield f"               Value function loss: {falling(i):.4f}\n                       Mean reward: {i * 0.3:.2f}\n               Mean episode length: {20 + i}.31"
        yield "-" * 80
        yield f"                   Total timesteps: {(i + 1) * 98304}\n                    Iteration time: 1.{i}2s\n                        Total time: {i * 1.9:.2f}s\n                               ETA: {2800 - i}.1s"


@log("iteration", None, "start")
def alphazero_general() -> Iterator[str]:
    yield "2021-05-01 12:00:00 gpu-1 __main__[4711] INFO Loading OthelloGame..."
    for i in range(1, 8):
        yield f"2021-05-01 12:0{i}:00 gpu-1 Coach[4711] INFO Starting Iter #{n(i)} ..."
        yield "\r".join(tqdm("Self Play", b, 25) for b in range(0, 26, 5))
        for e in range(1, 6):
            yield f"EPOCH ::: {e}"
            yield "\r".join(tqdm("Training Net", b, 30, ", Loss_pi=1.31e+00, Loss_v=4.1e-01") for b in (0, 15, 30))
        yield f"2021-05-01 12:0{i}:40 gpu-1 Coach[4711] INFO PITTING AGAINST PREVIOUS VERSION"
        yield "\r".join(tqdm("Arena.playGames (1)", b, 20) for b in (0, 10, 20))
        yield f"2021-05-01 12:0{i}:50 gpu-1 Coach[4711] INFO NEW/PREV WINS : {20 + i} / {12 - i} ; DRAWS : 8"


@log("step", 2000, None)
def muzero() -> Iterator[str]:
    yield "Training...\nRun tensorboard --logdir ./results and go to http://localhost:6006/ to see in real time the training performance."
    yield "\r".join(
        f"Last test reward: {k % 9}.00. Training step: {n(s)}/2000. Played games: {s // 13}. Loss: {falling(s):.2f}"
        for k, s in enumerate(range(0, 901, 30))
    )


@log("epoch", None, None)
def garage() -> Iterator[str]:
    for e in range(7):
        yield f"2020-05-01 12:0{e}:00 | [trpo_cartpole] epoch #{n(e)} | Sampling for iteration #{e}..."
        yield f"2020-05-01 12:0{e}:05 | [trpo_cartpole] epoch #{e} | Optimizing policy..."
        yield f"2020-05-01 12:0{e}:05 | [trpo_cartpole] epoch #{e} | Fitting baseline..."
        yield f"2020-05-01 12:0{e}:09 | [trpo_cartpole] epoch #{e} | EpochTime 9.{e}1"
        yield f"--------------------------  --------------\nEvaluation/AverageReturn       {e * 7}.1\nEvaluation/Iteration           {e}\nTotalEnvSteps               {(e + 1) * 1024}\n--------------------------  --------------"


@log("episode", None, "end")
def udacity_dqn() -> Iterator[str]:
    yield "\r".join(f"Episode {n(e)}\tAverage Score: {e * 0.1:.2f}" for e in range(1, 101))
    yield "\rEpisode 100\tAverage Score: 10.00"


@log("episode", None, "end")
def reinforce_example() -> Iterator[str]:
    for e in range(10, 301, 10):
        yield f"Episode {n(e)}\tLast reward: {e * 31 % 200}.00\tAverage reward: {e * 0.6:.2f}"
    yield "Solved! Running reward is now 475.31 and the last episode runs to 500 time steps!"


@log("iteration", 20, "start")
def self_play_loop() -> Iterator[str]:
    for i in range(1, 9):
        yield f"=== Self-play iteration {n(i)} of 20 ==="
        for g in range(10, 41, 10):
            yield f"  game {g}/40 moves={30 + g % 7} winner={'black' if g % 20 else 'white'}"
        for e in range(1, 6):
            yield f"  training epoch {e}/5 policy_loss={falling(e):.3f} value_loss=0.{e}1"
        yield f"  arena: won {12 + i} of 20, buffer 31{i}00"


@log("step", None, "end")
def dreamer() -> Iterator[str]:
    yield "Logdir: logdir/dmc/1\nCreate envs.\nPrefill dataset (2500 steps)."
    for k in range(1, 21):
        yield f"[{n(2500 + k * 1000)}] train_return {k * 12.3:.1f} / train_length {500:.1f} / train_episodes {k + 5:.1f}"
