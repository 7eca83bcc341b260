"""Mixing schedules and the rollout of transitions through the layers."""

from posbias.rollout.rollout import ADDITIONS, Addition, Rollout
from posbias.rollout.schedule import MixingSchedule

__all__ = ["ADDITIONS", "Addition", "MixingSchedule", "Rollout"]
