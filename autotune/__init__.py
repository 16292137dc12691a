"""Finding good schedules: tasks and templates, the search with its cost model, measurement in isolated processes, and the log.

Read in this order: record, space, registry, task, canonical, features, cost_model, search, verify, process, worker, runner, measure,
database, progress, tuner, lookup; templates/ has the operators' schedules.
"""

from .database import Database
from .lookup import find_best, load_best
from .record import Trial
from .registry import template
from .space import Config, Space
from .task import Task
from .templates import default_schedule
from .tuner import TuningRun, tune

__all__ = ["Config", "Database", "Space", "Task", "Trial", "TuningRun", "default_schedule", "find_best", "load_best", "template", "tune"]
