"""Evolution, hyperparameter search, boosting, sampling and classical optimisers."""

# ruff: noqa: E501 - lines as long as the programs print them
from __future__ import annotations

from collections.abc import Iterator

from support.logs import falling, log, n, tqdm


@log("generation", None, "end")
def deap_multi_statistics() -> Iterator[str]:
    yield "   \t      \t          fitness          \t        size         "
    yield "   \t      \t---------------------------\t---------------------"
    yield "gen\tnevals\tavg    \tmax  \tmin \tavg \tmax\tmin"
    for g in range(25):
        yield f"{n(g, '<3')}\t{180 + g * 31 % 60:<6}\t{falling(g):7.4f}\t{9 + g}.12\t0.{g:02}\t3.{g}\t{7 + g % 9}\t2  "


@log("generation", None, "start")
def deap_by_hand() -> Iterator[str]:
    yield "Start of evolution\n  Evaluated 300 individuals"
    for g in range(1, 16):
        yield f"-- Generation {n(g)} --\n  Evaluated {170 + g * 13 % 40} individuals\n  Min {30 + g}.0\n  Max {60 + g}.0\n  Avg {50 + g}.37\n  Std 4.7"
    yield "-- End of (successful) evolution --"


@log("generation", None, "end")
def pymoo() -> Iterator[str]:
    rule = "=" * 72
    yield f"{rule}\nn_gen  |  n_eval  | n_nds  |     igd      |      gd      |      hv      \n{rule}"
    for g in range(1, 26):
        yield f"{n(g, '6d')} | {g * 100:8d} | {10 + g * 7 % 60:6d} | {falling(g):.10E} | 0.{g:010} | 0.{g * 31:010}"


@log("generation", None, "end")
def pygmo() -> Iterator[str]:
    for g in range(1, 2000, 50):
        if g % 1000 == 1:
            yield "\n   Gen:        Fevals:          Best:            dx:            df:"
        yield f"{n(g, '7d')} {g * 20:14d} {falling(g):15.6g} {falling(g / 2):14.6g} {falling(g / 3):14.6g}"
    yield "Exit condition -- generations = 2000"


@log("generation", None, "end")
def tpot() -> Iterator[str]:
    yield "\r".join(tqdm("Optimization Progress", b, 300).replace("it/s", "pipeline/s") for b in range(0, 50, 7))
    for g in range(1, 6):
        yield f"\n\nGeneration {n(g)} - Current best internal CV score: 0.97{g}12\n"
        yield "\r".join(
            tqdm("Optimization Progress", b, 300).replace("it/s", "pipeline/s") for b in range(g * 50, g * 50 + 50, 7)
        )


@log("generation", None, "end")
def gplearn() -> Iterator[str]:
    yield "    |   Population Average    |             Best Individual              |\n---- ------------------------- ------------------------------------------ ----------"
    yield " Gen   Length          Fitness   Length          Fitness      OOB Fitness  Time Left"
    for g in range(20):
        yield f"{n(g, '4d')} {38 - g:8.2f} {458 / (g + 1):16.6g} {5 + g:8d} {falling(g):16.6g} {falling(g) + 0.1:16.6g} {20 - g:9.2f}m"


@log("step", None, "end")
def scipy_differential_evolution() -> Iterator[str]:
    for s in range(1, 30):
        yield f"differential_evolution step {n(s)}: f(x)= {falling(s)}"
    yield "Polishing solution with 'L-BFGS-B'"


@log("iteration", None, "end")
def lbfgsb() -> Iterator[str]:
    yield "RUNNING THE L-BFGS-B CODE\n\n           * * *\n\nMachine precision = 2.220D-16\n N =           10     M =           10"
    yield "\nAt X0         0 variables are exactly at the bounds"
    for i in range(30):
        yield f"\nAt iterate{n(i, '5d')}    f= {falling(i):.5f}D+00    |proj g|=  {falling(i) / 9:.5f}D-01"
    yield "\n           * * *\n\nTit   = total number of iterations\nTnf   = total number of function evaluations"


@log("trial", None, "end")
def optuna() -> Iterator[str]:
    yield "[I 2023-05-01 12:00:00,123] A new study created in memory with name: no-name-0a1b2c3d-4e5f"
    for t in range(20):
        yield f"[I 2023-05-01 12:{t:02}:10,{t * 41:03}] Trial {n(t)} finished with value: {falling(t)} and parameters: {{'lr': 0.0{t}1, 'n_layers': {t % 3}}}. Best is trial {t // 4 * 4} with value: 0.2."


@log("trial", None, "end")
def optuna_around_epochs() -> Iterator[str]:
    yield "[I 2023-05-01 12:00:00,123] A new study created in RDB with name: study"
    for t in range(8):
        for e in range(1, 6):
            yield f"Epoch {e}/5 - loss: {falling(e):.4f} - val_loss: 0.{t}{e}"
        yield f"[I 2023-05-01 12:{t:02}:10,{t * 41:03}] Trial {n(t)} finished with value: 0.{t}1 and parameters: {{'lr': 0.01}}. Best is trial 0 with value: 0.01."


@log("trial", 40, None)
def hyperopt() -> Iterator[str]:
    yield (
        "\r".join(
            tqdm("", t, 40).replace(f"| {t}/", f"| {n(t)}/").replace("it/s]", f"trial/s, best loss: {falling(t):.6f}]")
            for t in range(40)
        )
        + "\r"
        + tqdm("", 40, 40)
    )


@log("generation", None, "start")
def neat_python() -> Iterator[str]:
    for g in range(12):
        yield f"\n ****** Running generation {n(g)} ****** \n"
        yield f"Population's average fitness: {falling(g):.5f} stdev: 0.31\nBest fitness: 3.{g} - size: ({2 + g % 3}, {5 + g}) - species 1 - id {g * 50 + 31}"
        yield f"Average adjusted fitness: 0.4{g}\nMean genetic distance 1.2, standard deviation 0.3\nPopulation of 150 members in 2 species:"
        yield "   ID   age  size  fitness  adj fit  stag\n  ====  ===  ====  =======  =======  ===="
        yield f"     1  {g:3}   {90 + g:3}     3.{g}    0.412  {g % 5:4}\n     2  {g // 2:3}   {60 - g:3}     2.{g}    0.312  {g % 4:4}"
        yield f"Total extinctions: 0\nGeneration time: {1 + g * 0.01:.3f} sec ({1 + g * 0.01:.3f} average)"


@log("iteration", None, "start")
def openai_es() -> Iterator[str]:
    for i in range(10):
        yield f"********** Iteration {n(i)} ************"
        yield f"----------------------------------\n| EpRewMean           | {i * 7.1:<10.3} |\n| EpisodesThisIter    | {200 + i * 7 % 30:<10} |\n| EpisodesSoFar       | {(i + 1) * 210:<10} |\n| TimeElapsed         | {i * 12.1:<10.4} |\n----------------------------------"


@log("iteration", None, None)
def evotorch() -> Iterator[str]:
    for i in range(1, 20):
        yield f"         iter : {n(i)}\n    mean_eval : {falling(i) * 30}\npop_best_eval : {falling(i)}\n  median_eval : {falling(i) * 20}\n    best_eval : {falling(i)}\n"


@log("step", None, "end")
def pyribs() -> Iterator[str]:
    for i in range(100, 1001, 100):
        yield f"> {n(i)} itrs completed after {i / 31:.2f}s\n  - Size: {i * 7}\n  - Coverage: 0.{i}\n  - QD Score: {i * 31.7:.2f}"


@log("iteration", None, "start")
def scikit_optimize() -> Iterator[str]:
    for i in range(1, 16):
        yield f"Iteration No: {n(i)} started. Evaluating function at random point."
        yield f"Iteration No: {i} ended. Evaluation done at random point.\nTime taken: 0.{i:04}\nFunction value obtained: {falling(i):.4f}\nCurrent minimum: 0.3112"


@log("iteration", None, "end")
def bayes_opt() -> Iterator[str]:
    yield "|   iter    |  target   |     x     |     y     |\n-------------------------------------------------"
    for i in range(1, 16):
        colour = "\x1b[95m" if i % 4 == 0 else ""
        yield f"| {colour}{n(i, '<9')}\x1b[0m | {falling(i):<9.4} | {i * 0.31:<9.4} | {-i * 0.7:<9.4} |"
    yield "=" * 49


@log("trial", None, None)
def keras_tuner() -> Iterator[str]:
    for t in range(1, 9):
        yield f"\nSearch: Running Trial #{n(t)}\n\nValue             |Best Value So Far |Hyperparameter\n32                |{t * 8:<18}|units\n0.01              |0.001             |learning_rate\n"
        for e in range(1, 5):
            yield f"Epoch {e}/4\n32/32 [==============================] - 1s 12ms/step - loss: {falling(e):.4f} - val_accuracy: 0.9"
        yield f"\nTrial {n(t)} Complete [00h 00m {10 + t}s]\nval_accuracy: 0.9{t}\n\nBest val_accuracy So Far: 0.95\nTotal elapsed time: 00h {t:02}m 12s"


@log("iteration", None, "end")
def xgboost() -> Iterator[str]:
    yield '[12:00:00] WARNING: ../src/learner.cc:767: \nParameters: { "silent" } are not used.'
    for i in range(50):
        yield f"[{n(i)}]\ttrain-logloss:{falling(i):.5f}\tvalid-logloss:{falling(i) + 0.1:.5f}"


@log("iteration", None, "end")
def xgboost_prefixed() -> Iterator[str]:
    for i in range(0, 100, 5):
        yield f"2024-05-01 12:00:{i // 2:02},123 INFO [xgb] [{n(i)}]\tvalidation_0-auc:0.9{i:02}\tvalidation_1-auc:0.8{i:02}"


@log("iteration", None, "end")
def lightgbm_cv() -> Iterator[str]:
    yield "[LightGBM] [Info] Number of positive: 4012, number of negative: 5988\n[LightGBM] [Info] Total Bins 25500"
    for i in range(10, 201, 10):
        yield f"[{n(i)}]\tcv_agg's valid auc: 0.9{i} + 0.00{i}"


@log("iteration", None, "end")
def catboost() -> Iterator[str]:
    yield "Learning rate set to 0.03"
    for i in [*range(0, 1000, 100), 999]:
        yield f"{n(i)}:\tlearn: {falling(i):.7f}\ttest: 0.4{i}\tbest: 0.41{i} ({i})\ttotal: {i * 3.1:.3g}ms\tremaining: {(1000 - i) * 3.1:.3g}ms"
    yield "\nbestTest = 0.4012\nbestIteration = 997\n\nShrink model to first 998 iterations."


@log("iteration", None, "end")
def ngboost() -> Iterator[str]:
    for i in range(0, 500, 100):
        yield f"[iter {n(i)}] loss={falling(i):.4f} val_loss=0.0000 scale=1.0000 norm=6.{i}"


@log("step", 40, "end")
def sklearn_hist_gradient_boosting() -> Iterator[str]:
    yield "Binning 0.212 GB of training data: 1.231 s\nFitting gradient boosted rounds:"
    for i in range(1, 41):
        yield f"[{n(i)}/40] 1 tree, 31 leaves, max depth = {8 + i % 5}, in 0.0{i}s"
    yield "Fit 40 trees in 1.912 s, (1240 total leaves)"


@log("tree", 100, "start")
def sklearn_forest() -> Iterator[str]:
    yield "[Parallel(n_jobs=1)]: Using backend SequentialBackend with 1 concurrent workers."
    for i in range(1, 101):
        yield f"building tree {n(i)} of 100"
        if i == 1:
            yield "[Parallel(n_jobs=1)]: Done   1 out of   1 | elapsed:    0.0s remaining:    0.0s"


@log("iteration", 10, "end")
def sklearn_lda() -> Iterator[str]:
    for i in range(1, 11):
        yield f"iteration: {n(i)} of max_iter: 10, perplexity: {1200 - i * 31.2:.4f}"


@log("iteration", 2000, None)
def stan() -> Iterator[str]:
    yield "Gradient evaluation took 3.1e-05 seconds\n1000 transitions using 10 leapfrog steps per transition would take 0.31 seconds."
    for i in [1, *range(200, 2001, 200)]:
        yield f"Chain 1 Iteration: {n(i, '4d')} / 2000 [{i // 20:3}%]  ({'Warmup' if i <= 1000 else 'Sampling'}) "
    yield " Elapsed Time: 0.031 seconds (Warm-up)"


@log("step", 3000, "start")
def emcee_bar() -> Iterator[str]:
    yield (
        "\r".join(tqdm("", i, 3000).replace(f"| {i}/", f"| {n(i)}/") for i in range(0, 3000, 40))
        + "\r"
        + tqdm("", 3000, 3000)
    )


@log("iteration", None, "end")
def r_nnet() -> Iterator[str]:
    yield "# weights:  123\ninitial  value 412.312311 "
    for i in range(10, 151, 10):
        yield f"iter {n(i, '3d')} value {falling(i) * 90:.6f}"
    yield "final  value 23.112311 \nstopped after 150 iterations"


@log("epoch", None, None)
def matlab_table() -> Iterator[str]:
    yield "Training on single CPU.\nInitializing input data normalization."
    yield "|=====================================================================|\n|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Base Learning  |\n|         |             |   (hh:mm:ss)   |     Loss     |      Rate       |\n|=====================================================================|"
    last = 0
    for i in range(1, 40):
        e = (i * 50 - 50) // 390 + 1
        mark = n(e, "7d") if e != last else f"{e:7d}"
        last = e
        yield f"| {mark} | {(i - 1) * 50 + 1:11d} |       00:00:{i + 10:2d} |      {falling(i):.4f} |      0.0100 |"


@log("generation", None, "end")
def gp_archipelago() -> Iterator[str]:
    yield "INFO  archipelago: 4 islands, migration every 5"
    for g in range(1, 13):
        for island in range(4):
            yield f"INFO  island {island}: gen {n(g)} best={falling(g + island):.4f} mean={falling(g):.4f} pop=250"


@log("generation", 300, "end")
def evolution_strategy_lines() -> Iterator[str]:
    yield "config: popsize=64 sigma=0.1 generations=300 seed=7"
    for g in range(40):
        yield f"gen={n(g)} evals={(g + 1) * 64} best={falling(g):.4f} sigma={0.1 * 0.99**g:.5f} t={g * 1.3:.1f}s"
