"""CleanRL's dqn.py, unmodified, on an environment with 4,000 numbers an observation: cleanrl_dqn.py CHECKOUT."""

import runpy
import sys
from pathlib import Path

import gymnasium
from wide import Wide

gymnasium.register("Wide-v0", lambda **options: Wide(gymnasium.spaces.Discrete(4)))
source = Path(sys.argv[1]).resolve()
sys.path[0] = str(source)
steps = ["--total-timesteps", "30000", "--buffer-size", "25000", "--learning-starts", "1000", "--train-frequency", "4"]
sys.argv[1:] = ["--env-id", "Wide-v0", *steps]
runpy.run_path(str(source / "cleanrl" / "dqn.py"), run_name="__main__")
