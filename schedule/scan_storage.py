"""Where the tensors of scans are held: updates and initial steps in the scan's result, of which only the live steps are kept where no more than the last
ones are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..te.scan import ScanOp
from ..te.tensor import Tensor
from ..tir.affine import difference
from ..tir.expr import Buffer, Expr, Load, as_expr
from ..tir.visit import loads_of
from .access import Access
from .bounds import Guard, StageLoops
from .stage import position_of


class ScanStorage:
    """The scans among some stages. `elsewhere`: the tensors without storage of their own, as they are parts of a scan's result."""

    def __init__(self, args: Sequence[Tensor], all_loops: Sequence[StageLoops]):
        self.args, self.all_loops = args, all_loops
        self.elsewhere: list[Tensor] = []
        self._initial: dict[Any, list[tuple[Tensor, ScanOp]]] = {}  # stage -> its outputs that are initial steps, computed in place
        for loops in all_loops:
            if loops.stage.is_scan:
                self.elsewhere += loops.stage.op.update
            if loops.stage.is_scan and loops.stage.attach.kind == "root" and not loops.stage.threads:  # those around it run it again before they are threads
                for number in range(len(loops.stage.outputs)):
                    self._place_initial(loops, number)

    def _place_initial(self, loops: StageLoops, number: int) -> None:
        """Initial steps are computed in place if they are computed at root into plain memory and nothing else reads them."""
        op: ScanOp = loops.stage.op
        init = op.init[number]
        if not isinstance(loops.body[number], Load) or position_of(init, self.args) is not None:
            return  # inlined, or an argument
        source = next((other.stage for other in self.all_loops if position_of(init, other.stage.outputs) is not None), None)
        if source is None or source.is_scan or source.is_extern or source.is_output or source.attach.kind != "root":
            return
        if source.layout is not None or source.alignment or source.scope not in (None, "global"):
            return
        readers = sum(node.buffer is init.buffer for other in self.all_loops for e in other.expressions for node in loads_of(e))
        if readers == 1:
            self.elsewhere.append(init)
            self._initial.setdefault(source, []).append((init, op))

    def guards(self, loops: StageLoops) -> list[Guard]:
        """Of initial steps computed in place: that there are as many steps, where that is known at the call only."""
        found = []
        for _, op in self._initial.get(loops.stage, ()):
            length = op.state[0].shape[0]
            if isinstance(length, Expr):
                time = loops.stage.op.axis[0]
                condition = loops.value[time.var] < length
                found.append(Guard(condition, False, set(loops.variables.values()) & set(condition.variables)))
        return found[:1]

    def access(self, scan: StageLoops, tensor: Tensor) -> Access:
        """Workspace for a scan's result: all steps, or the live ones, step t in row t modulo their number."""
        length, stage = tensor.shape[0], scan.stage
        live = self._live_steps(stage, tensor)
        origin, shape = scan.states[tensor.value_index]
        name = stage.name if len(stage.outputs) == 1 else f"{stage.name}.v{tensor.value_index}"
        if live is None or (isinstance(length, int) and live >= length):
            return Access(Buffer(name, _at_least_one(shape), tensor.dtype, scan.scope), origin, None)
        folded = Buffer(name, _at_least_one((live, *shape[1:])), tensor.dtype, scan.scope)
        return Access(folded, origin, lambda time, *others: (time % live, *others))

    def _live_steps(self, stage: Any, tensor: Tensor) -> int | None:
        """How many steps must be kept at a time; None if all."""
        op: ScanOp = stage.op
        if stage.is_output:
            return None
        live = op.steps if self._is_in_place(op, tensor.value_index) else max(op.steps, op.lags[tensor.value_index] + 1)
        for loops in self.all_loops:
            for e in loops.expressions:
                for node in loads_of(e):
                    if node.buffer is tensor.buffer:
                        if loops.stage.is_extern:  # it reads on from there
                            return None
                        terms, back = difference(as_expr(tensor.shape[0]), node.indices[0])
                        if terms:
                            return None
                        live = max(live, back)
        return live

    def _is_in_place(self, op: ScanOp, number: int) -> bool:
        """Whether each element of an update may take the place of the one before: nothing else in the step reads that one then."""
        update, state = op.update[number], op.state[number]
        position = {loops.stage: n for n, loops in enumerate(self.all_loops)}
        own = next(loops for loops in self.all_loops if position_of(update, loops.stage.outputs) is not None)
        if len(own.stage.outputs) > 1 or own.stage.op.reducer is not None:
            return False
        for loops in self.all_loops:
            for node in (node for e in loops.expressions for node in loads_of(e) if node.buffer is state.buffer):
                if loops is own:
                    same = all(i is axis.var for i, axis in zip(node.indices[1:], own.stage.op.axis[1:], strict=True))
                    if not same:
                        return False
                elif position.get(_in_the_step(loops.stage), len(position)) >= position[own.stage]:
                    return False
        return True

    def redirect(self, op: ScanOp, access: dict[Buffer, Access]) -> None:
        """States, updates and initial steps computed in place are reached through the result."""
        for number, tensor in enumerate(op.outputs):
            access[op.state[number].buffer] = access[op.update[number].buffer] = access[tensor.buffer]
            if position_of(op.init[number], self.elsewhere) is not None:
                access[op.init[number].buffer] = access[tensor.buffer]


def _in_the_step(stage: Any) -> Any:
    """The stage of a scan's step that is computed in its time axis, in which a stage is computed."""
    while stage.attach.kind == "at" and not stage.attach.consumer.is_scan:
        stage = stage.attach.consumer
    return stage


def _at_least_one(shape: Sequence[int | Expr]) -> list[int | Expr]:
    return [max(e, 1) if isinstance(e, int) else e for e in shape]
