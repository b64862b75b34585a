"""The wheel with each of its extras and no other, with the sources out of reach; and without what is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from support import smoke
from support.wheels import TRACKED, TRACKERS, Installed, Package, environment


@pytest.fixture(scope="module", params=smoke.EXTRA)
def with_extra(
    request: pytest.FixtureRequest, made: Package, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Installed]:
    if request.param in TRACKED and not TRACKERS.exists():
        pytest.skip("needs wandb, mlflow, tensorboard, apprise and pyarrow: make tools")
    return request.param, environment(tmp_path_factory.mktemp(request.param), made, request.param)


@pytest.mark.parametrize("extra", list(smoke.EXTRA))
def test_without_an_extra_what_needs_it_says_which(installed: Installed, tmp_path: Path, extra: str) -> None:
    asked = installed.memwatch(*smoke.wanting(extra, tmp_path))
    assert asked.returncode in (ExitCode.USAGE, ExitCode.CANNOT_ATTACH)
    assert f"pip install 'memwatch[{extra}]'" in asked.stdout + asked.stderr


def test_with_an_extra_it_is_there_and_no_other(with_extra: tuple[str, Installed]) -> None:
    extra, installed = with_extra
    told = smoke.said(installed, "--version").splitlines()[-2]
    assert f" {extra} (" in told
    assert told.partition("not installed: ")[2] == ", ".join(one for one in smoke.EXTRA if one != extra)


def test_with_an_extra_what_needs_it_works(with_extra: tuple[str, Installed], tmp_path: Path) -> None:
    smoke.EXTRA[with_extra[0]](with_extra[1], tmp_path)
