"""Mathematics: SFT, eleven-arm rollouts, coherence, DPO, GSM8K."""

from sparring.core.plugin import Plugin

plugin = Plugin(
    "coherent_math",
    package=__name__,
    games={"coherent_math": "sparring.pipelines.coherent_math.game:CoherentMath"},
    trainers={"coherent-math": "sparring.pipelines.coherent_math.whole_run:train"},
    benchmarks={
        "gsm8k": "sparring.pipelines.coherent_math.gsm8k:evaluate",
        "gsm8k-platinum": "sparring.pipelines.coherent_math.gsm8k:evaluate",
    },
    report=["sparring.pipelines.coherent_math.report:section"],
    commands=["sparring.pipelines.coherent_math.cli:add_commands"],
    config={"math": "sparring.pipelines.coherent_math.config:MathConfig"},
)
