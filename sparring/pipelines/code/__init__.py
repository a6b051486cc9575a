"""Code games and the benchmarks MBPP and HumanEval."""

from sparring.core.plugin import Plugin

plugin = Plugin(
    "code",
    package=__name__,
    games={
        "code_execution": "sparring.pipelines.code.execution:CodeExecution",
        "code_tests": "sparring.pipelines.code.code_tests:CodeTests",
        "code_prediction": "sparring.pipelines.code.prediction:CodePrediction",
    },
    benchmarks={
        "mbpp": "sparring.pipelines.code.benchmarks:evaluate",
        "humaneval": "sparring.pipelines.code.benchmarks:evaluate",
        "mbpp+": "sparring.pipelines.code.benchmarks:evaluate",
        "humaneval+": "sparring.pipelines.code.benchmarks:evaluate",
    },
    evaluations={"mbpp": "sparring.pipelines.code.mbpp:evaluation"},
    measures=["sparring.pipelines.code.code_tests:MEASURES"],
    config={"mbpp": "sparring.pipelines.code.config:MbppConfig"},
    translations=["sparring.pipelines.code.foreign:translation"],
    environment={"MBPP_EVAL_NUM_QUESTIONS": "mbpp.problems", "MBPP_DATASET_PATH": "mbpp.data"},
)
