"""An environment for verifiers: sums, with two rewards."""

import verifiers.v1 as vf


class AddingData(vf.TaskData):
    total: int = 0


class AddingTask(vf.Task[AddingData]):
    @vf.reward(weight=2.0)
    async def right(self, trace: vf.Trace) -> float:
        if trace.last_reply == "raise":
            raise RuntimeError("a reply that cannot be judged")
        return float(trace.last_reply == str(self.data.total))

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return 1 / (1 + len(trace.last_reply))


class AddingConfig(vf.TasksetConfig):
    count: int = 4


class AddingTaskset(vf.Taskset[AddingTask, AddingConfig]):
    def load(self):
        for i in range(self.config.count):
            data = AddingData(prompt=f"{i} + {i + 1} =", system_prompt="Add.", total=2 * i + 1)
            yield AddingTask(data, self.config.task)


__all__ = ["AddingTaskset"]
