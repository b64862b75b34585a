"""Callbacks that mark the progress of a trainer of a library: for those who want exact epochs, phases and saves.

    Trainer(..., callbacks=[memwatch.callbacks.huggingface()])
    lightning.Trainer(callbacks=[memwatch.callbacks.lightning()])
    model.fit(..., callbacks=[memwatch.callbacks.keras()])

A library is imported when its callback is made.
"""

from __future__ import annotations

from typing import Any

from memwatch.marking import mark


def huggingface() -> Any:
    """A TrainerCallback: optimizer steps of `max_steps`, evaluation as a phase, each checkpoint."""
    from transformers import TrainerCallback  # type: ignore[import-not-found]

    class HuggingFaceMarks(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            mark(step=state.global_step + 1, total=state.max_steps, phase="train")

        def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            mark(phase="evaluate")

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            mark(saved=f"{args.output_dir}/checkpoint-{state.global_step}")

    return HuggingFaceMarks()


def lightning() -> Any:
    """A Callback: epochs of `max_epochs`, validation as a phase, each checkpoint."""
    from lightning.pytorch import Callback  # type: ignore[import-not-found]

    class LightningMarks(Callback):  # type: ignore[misc]
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            total = trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs > 0 else None
            mark(epoch=trainer.current_epoch, total=total, phase="train")

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            mark(phase="validate")

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            mark(phase="train")

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            mark(saving="checkpoint")

    return LightningMarks()


def keras() -> Any:
    """A Callback: epochs, evaluation as a phase."""
    from keras.callbacks import Callback  # type: ignore[import-not-found]

    class KerasMarks(Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            mark(epoch=epoch + 1, total=self.params.get("epochs"), phase="train")

        def on_test_begin(self, logs: Any = None) -> None:
            mark(phase="evaluate")

    return KerasMarks()
