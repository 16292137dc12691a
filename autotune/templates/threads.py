"""Whether a kernel is shared among threads: one knob for all families."""

from __future__ import annotations

from ..space import Config


def parallel_knob(cfg: Config, work: int, worthwhile: int) -> bool:
    """The knob "parallel", where the target has several threads.

    work         what one call does, in the unit of `worthwhile` (multiply-adds, elements)
    worthwhile   from where on it is the default: below about 10 microseconds of work, waking the threads costs more than they save
    """
    return cfg.target.threads > 1 and bool(cfg.define_knob("parallel", [True, False], default=work >= worthwhile).val)
