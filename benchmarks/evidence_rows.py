"""The runs behind the table on top of docs/results.md: recipes, and what each run changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    pipeline: str
    model: str
    label: str  # of the measure, with the direction that is better
    # Path in evaluation.json, where `untrained/…` has the same before, or in phases.json; or a
    # metric, whose first and last value count.
    measure: str
    recipe: str
    overrides: tuple[str, ...] = ()
    before: str = ""  # path of the measure before training, where it is another
    then: str = ""  # a benchmark that reads each run, here {run}, and prints more


# Fitted to perfect play a little, then self-play with a perfect opponent in four games of ten.
SMOLLM2_TICTACTOE = (
    "begin.main=perfect:6000", "imitation={epochs: 8, lr: 1e-4, batch: 128}",
    "opponents.kind=perfect", "opponents.share=0.4", "learn.lr=5e-5", "learn.lr_floor=0.1",
    "learn.entropy=0.03", "learn.entropy_end=0.003", "iterations=80", "evaluate.every=40",
    "evaluate.games=1000", "evaluate.final=1000",
)  # fmt: skip
# In words, two goods and four turns: the game that nano plays in its terse form.
SMOLLM2_NEGOTIATION = (
    "policy=smollm2", "games.negotiation={style: short, goods: [Wood, Gold], cap: 4}",
    "sampling.mask_actions=false", "begin.main=scripted:3000",
    "imitation={epochs: 2, lr: 1e-4, batch: 64}", "credit.kind=role_baseline", "learn.lr=1e-5",
    "learn.entropy=0.002", "learn.entropy_end=0.002", "iterations=20", "collect.episodes=512",
)  # fmt: skip
# Fitted to each game's own program first, which is met in three games of ten; a reference that
# follows holds the mixture of Kuhn poker back.
SPIRAL_WARM = (
    "begin.main=scripted:3000", "opponents={kind: scripted, share: 0.3}", "learn.kl=0.2",
    "learn.reference=ema", "learn.reference_rate=0.05", "learn.lr_floor=0.05", "iterations=100",
)  # fmt: skip
NANO_SPIRAL = (
    *SPIRAL_WARM, "imitation={epochs: 3, lr: 1e-3, batch: 128}", "collect.episodes=768",
    "learn.lr=3e-4", "learn.entropy=0.15", "learn.entropy_end=0.02",
)  # fmt: skip
# Replies of a few tokens, not masked: what a model says is its own, so that it can collapse.
SMOLLM2_SPIRAL = (
    *SPIRAL_WARM, "policy=smollm2",
    "games={tictactoe: {style: short, opening: 8, max_tokens: 1}, kuhn: {style: short}, "
    "negotiation: {style: short, goods: [Wood, Gold], cap: 4}}",
    "sampling.mask_actions=false", "imitation={epochs: 2, lr: 1e-4, batch: 64}",
    "learn.lr=3e-5", "learn.entropy=0.02", "learn.entropy_end=0.003", "iterations=60",
    "evaluate.every=60",
)  # fmt: skip
NANO_MATCHING = (
    "begin.main=scripted:12000", "collect.episodes=1024", "collect.group=16",
    "evaluate.final=1000",
)  # fmt: skip
SMOLLM2_MATCHING = (
    "policy=smollm2", "curriculum={}", "begin.main=scripted:12000", "learn.lr=2e-5",
    "learn.batch=256",
)  # fmt: skip
# With λ below 1 the early of five stages, hundreds of tokens back, would get no credit. Half of the
# programs that the generator imitates are wrong: perfect ones leave nothing to break.
LISTS = (
    "tasks.source=shipped:lists", "tasks.holdout=0.3", "curriculum={}",
    "begin={generator: 'scripted:507', discriminator: 'perfect:338'}",
    "imitation={epochs: 3, lr: 3e-4, batch: 16}", "evaluate.games=73", "evaluate.ladder=146",
    "evaluate.temperature=0.8", "collect.episodes=192", "credit.trace=1",
    "schedule={enabled: true, discriminator: 3, generator: 3, alternating: 0, together: true, "
    "every: 6}",
)  # fmt: skip
ALICE = (
    "iterations=5", "games.equivalence.style=short", "games.equivalence.bob_tokens=3",
    "games.equivalence.alice_tokens=160", "games.equivalence.crosshair_paths=10",
    "games.equivalence.targets=[6, 8, 10]", "begin.alice=scripted:300",
    "imitation={epochs: 6, lr: 5e-4, batch: 16}", "sampling.temperature=0.8", "sampling.top_p=1",
    "sampling.top_k=0", "collect.episodes=200", "learn.lr=5e-4",
)  # fmt: skip
GSM8K = (
    "tasks.source=gsm8k_train.jsonl", "math.gsm8k.data=gsm8k_test.jsonl", "iterations=2",
    "math.sft.epochs=2", "math.sft.lr=4e-4", "math.sft.batch=64", "math.rollouts.questions=2000",
)  # fmt: skip
# Nine games of ten are against the other's start: an author finds programs that nobody predicts,
# and a predictor that met only those would learn nothing and forget what it knew.
PREDICTION = (
    "players={author: author, predictor: predictor}", "mbpp.enabled=false",
    "opponents={kind: league, start: true, share: 0.9, every: 1000}",
    "learn.minibatches=2",
)  # fmt: skip
MBPP = ("tasks.source=mbpp.jsonl", "tasks.split=train+validation+prompt", "tasks.holdout=0")
ROWS = {
    "tictactoe": Row(
        "SPIRAL", "nano", "lost to perfect play ↓", "tictactoe/perfect/losses", "tictactoe"
    ),
    "tictactoe-smollm2": Row(
        "SPIRAL", "SmolLM2", "lost to perfect play ↓", "tictactoe/perfect/losses",
        "tictactoe-smollm2", SMOLLM2_TICTACTOE,
    ),
    "tictactoe-smollm2-alone": Row(
        "SPIRAL, without imitation", "SmolLM2", "lost to perfect play ↓",
        "tictactoe/perfect/losses", "tictactoe-smollm2",
        (
            "opponents.kind=perfect", "opponents.share=0.3", "learn.lr=1e-4",
            "learn.entropy_end=0.005", "iterations=220", "evaluate.final=1000",
        ),
    ),
    "tictactoe-smollm2-long": Row(
        "SPIRAL, three times the steps", "SmolLM2", "lost to perfect play ↓",
        "tictactoe/perfect/losses", "tictactoe-smollm2",
        (*SMOLLM2_TICTACTOE, "iterations=240", "learn.horizon=240"),
    ),
    "kuhn": Row("SPIRAL", "nano", "exploitability ↓", "kuhn/exact/exploitability", "kuhn"),
    "kuhn-unmasked": Row(
        "SPIRAL, drawn from all tokens", "nano", "exploitability, forfeits charged ↓",
        "kuhn/exact/exploitability", "kuhn",
        (
            "sampling.mask_actions=false", "begin.main=random:2000", "imitation.lr=1e-3",
            "iterations=400", "learn.kl_end=0.8",
        ),
    ),
    "leduc": Row(
        "SPIRAL", "nano", "exploitability ↓", "openspiel:leduc_poker/exact/exploitability", "leduc"
    ),
    "liars-dice": Row(
        "SPIRAL", "nano", "exploitability ↓",
        "openspiel:liars_dice(dice_sides=4)/exact/exploitability", "openspiel",
    ),
    "spiral": Row(
        "SPIRAL", "nano", "lost to perfect tic-tac-toe ↓", "tictactoe/perfect/losses", "spiral"
    ),
    "spiral-no-baseline": Row(
        "SPIRAL, ablation", "nano", "lost to perfect tic-tac-toe ↓", "tictactoe/perfect/losses",
        "spiral", ("credit.decay=1",),
    ),
    "spiral-warm": Row(
        "SPIRAL, warm start", "nano", "lost to perfect tic-tac-toe ↓", "tictactoe/perfect/losses",
        "spiral", NANO_SPIRAL,
    ),
    "spiral-warm-no-baseline": Row(
        "SPIRAL, warm start, ablation", "nano", "lost to perfect tic-tac-toe ↓",
        "tictactoe/perfect/losses", "spiral", (*NANO_SPIRAL, "credit.decay=1"),
    ),
    "spiral-warm-prompt": Row(
        "SPIRAL, warm start, baselines by prompt", "nano", "exploitability of Kuhn poker ↓",
        "kuhn/exact/exploitability", "spiral",
        (
            *NANO_SPIRAL, "credit.kind=prompt_baseline", "collect.episodes=1536", "iterations=80",
            "learn.minibatches=2", "learn.betas=[0.5,0.99]", "learn.entropy=0.1",
            "learn.entropy_end=0.01",
        ),
    ),
    "spiral-smollm2": Row(
        "SPIRAL", "SmolLM2", "lost to perfect tic-tac-toe ↓", "tictactoe/perfect/losses",
        "spiral", SMOLLM2_SPIRAL,
    ),
    "spiral-smollm2-no-baseline": Row(
        "SPIRAL, ablation", "SmolLM2", "lost to perfect tic-tac-toe ↓", "tictactoe/perfect/losses",
        "spiral", (*SMOLLM2_SPIRAL, "credit.decay=1"),
    ),
    "negotiation": Row(
        "negotiation", "nano", "lost to the scripted trader ↓", "negotiation/scripted/losses",
        "negotiation",
    ),
    "negotiation-smollm2": Row(
        "negotiation", "SmolLM2", "lost to the scripted trader ↓", "negotiation/scripted/losses",
        "negotiation", SMOLLM2_NEGOTIATION,
    ),
    "matching": Row("matching", "nano", "score ↑", "matching/exact/score", "matching"),
    "matching-warm": Row(
        "matching, 3 × 3", "nano", "score ↑", "matching/exact/score", "matching-warm", NANO_MATCHING
    ),
    "matching-no-channel": Row(
        "matching, 3 × 3, channel cut", "nano", "score ↑", "matching/exact/score", "matching-warm",
        (*NANO_MATCHING, "games.matching.channel=false"),
    ),
    "matching-smollm2": Row(
        "matching, 3 × 3, terse", "SmolLM2", "score ↑", "matching/exact/score", "matching-warm",
        (
            *SMOLLM2_MATCHING, "games.matching.spaced=true", "iterations=20",
            "imitation={epochs: 4, lr: 2e-4, batch: 128}",
        ),
    ),
    "matching-words": Row(
        "matching, 3 × 3, in words", "SmolLM2", "score ↑", "matching/exact/score", "matching-warm",
        (
            "policy=smollm2", "games.matching.style=short", "games.matching.scales=[1, 1]",
            "begin.main=scripted:2000", "imitation={epochs: 3, lr: 1e-4, batch: 64}",
            "learn.lr=1e-5", "learn.batch=256", "iterations=16", "collect.episodes=256",
        ),
    ),
    "equivalence-bob": Row(
        "equivalence", "SmolLM2", "pairs judged right ↑", "pairs_eval/accuracy", "equivalence-bob"
    ),
    "equivalence": Row(
        "equivalence", "SmolLM2", "Alice's pairs, mean difficulty for Bob ↑",
        "equivalence/mean_difficulty", "equivalence", ALICE,
    ),
    "equivalence-nano": Row(
        "equivalence, both seats", "nano", "Alice's pairs, mean difficulty for Bob ↑",
        "equivalence/mean_difficulty", "equivalence-nano", then="pairs.py {run}",
    ),
    "mathematics": Row(
        "mathematics", "SmolLM2", "GSM8K ↑", "eval_dpo/pass_rate", "coherent-math", GSM8K,
        before="eval_base/pass_rate",
    ),
    "mathematics-correctness": Row(
        "mathematics, no coherence pairs", "SmolLM2", "GSM8K ↑", "eval_dpo/pass_rate",
        "coherent-math", (*GSM8K, "math.preferences.coherence=0"), before="eval_base/pass_rate",
    ),
    "adversary": Row(
        "adversary", "nano", "discriminator's reward ↑", "reward/adversarial_tests/discriminator",
        "adversarial-discriminator",
    ),
    "adversary-warm": Row(
        "adversary", "SmolLM2", "held-out tests passed, from imitation on ↑",
        "eval/adversarial_tests/held_out/pass_rate_baseline", "adversarial-warm",
        (
            "tasks.source=mbpp.json", "tasks.holdout=0.3", "evaluate.games=75",
            "evaluate.ladder=100", "imitation={epochs: 4, lr: 3e-4, batch: 16}",
            "schedule.discriminator=2", "schedule.generator=3",
        ),
    ),
    "adversary-nano": Row(
        "adversary, both seats", "nano", "programs right ↑", "tests/programs_right",
        "adversarial-warm",
        (
            "policy=nano", "curriculum={}", "tasks={source: 'shipped:digits', holdout: 0}",
            "games.adversarial_tests={style: terse, stages: [code], timeout_s: 2, most_tests: 1, "
            "program_tokens: 80, test_tokens: 1}",
            "begin={generator: 'scripted:1200', discriminator: 'perfect:100'}",
            "imitation={epochs: 3, lr: 1e-3, batch: 32}", "sampling.temperature=1",
            "schedule={enabled: true, discriminator: 20, generator: 20, alternating: 12}",
            "collect.episodes=256", "collect.group=8", "credit.trace=1", "learn.weights=full",
            "learn.lr=3e-4", "learn.critic_lr=1e-2", "learn.entropy=0.02",
            "learn.entropy_end=0.003", "learn.kl_stop=0.05", "evaluate.temperature=1",
            "evaluate.ladder=240",
        ),
        then="crossplay.py {run}",
    ),
    "adversary-lists": Row(
        "adversary, problems on lists", "SmolLM2", "held-out tests passed, from imitation on ↑",
        "eval/adversarial_tests/held_out/pass_rate_baseline", "adversarial-warm", LISTS,
        then="crossplay.py {run}",
    ),
    "adversary-lists-race": Row(
        "adversary, both seats begin weak", "SmolLM2", "held-out programs broken ↑",
        "eval/adversarial_tests/held_out/programs_broken", "adversarial-warm",
        (
            *LISTS, "begin={generator: 'scripted:507', discriminator: 'perfect:112'}",
            "sampling.temperature=1", "evaluate.temperature=1",
        ),
        then="crossplay.py {run}",
    ),
    "adversary-lists-cpu": Row(
        "adversary, the last stage, both seats begin weak", "SmolLM2", "programs broken ↑",
        "tests/programs_broken", "adversarial-warm",
        (
            *LISTS, "begin={generator: 'scripted:120', discriminator: 'perfect:32'}",
            "games.adversarial_tests={style: short, stages: [code], timeout_s: 2, most_tests: 1, "
            "program_tokens: 64, test_tokens: 40, inputs_only: true}",
            "imitation={epochs: 2, lr: 3e-4, batch: 8}", "sampling.temperature=1",
            "evaluate.temperature=1", "evaluate.games=0", "evaluate.final=0",
            "collect.episodes=48", "schedule.discriminator=8", "schedule.generator=5",
            "learn.epochs=1", "learn.lr=3e-4", "learn.packing=true", "learn.tokens_per_batch=640",
        ),
        then="crossplay.py {run}",
    ),
    "code": Row(
        "code", "SmolLM2", "MBPP passed ↑", "mbpp_eval/pass_rate", "grpo-code-execution"
    ),
    "code-tests": Row(
        "code", "SmolLM2", "MBPP passed, from imitation on ↑", "mbpp_eval/pass_rate",
        "grpo-code-tests",
        (
            *MBPP, "mbpp.data=mbpp.jsonl", "mbpp.k=[1, 10]", "mbpp.temperature=0.8",
            "begin.main=scripted:474", "iterations=40", "mbpp.every=40", "learn.lr=2e-5",
            "learn.schedule=linear",
        ),
    ),
    "prediction": Row(
        "code, prediction game", "SmolLM2", "author's reward, all games ↑",
        "reward/code_prediction/author", "grpo-code-game",
        (
            *MBPP[:2], *PREDICTION, "begin={author: 'scripted:474', predictor: 'scripted:474'}",
            "imitation={epochs: 3, lr: 2e-4, batch: 32}", "iterations=30",
            "games.code_prediction={style: short, timeout_s: 2, author_tokens: 192, "
            "predictor_tokens: 48, max_output: 24}",
            "sampling.temperature=0.8", "collect.episodes=512", "collect.group=16",
            "learn.epochs=2", "learn.lr=1e-4",
        ),
        then="prediction.py {run} mbpp.jsonl",
    ),
    "prediction-nano": Row(
        "code, prediction game", "nano", "author's reward, all games ↑",
        "reward/code_prediction/author", "grpo-code-game",
        (
            *PREDICTION, "policy=nano",
            "begin={author: 'scripted:400', predictor: 'scripted:2000'}",
            "imitation={epochs: 10, lr: 2e-3, batch: 32}", "iterations=36",
            "games.code_prediction={style: terse, timeout_s: 2, author_tokens: 4, "
            "predictor_tokens: 5, max_output: 24}",
            "sampling.temperature=1", "collect.episodes=1024", "collect.group=64",
            "learn.epochs=4", "learn.lr=4e-4", "learn.weights=full", "learn.packing=true",
            "learn.tokens_per_batch=4096",
        ),
        then="prediction.py {run} mbpp.jsonl",
    ),
}  # fmt: skip
