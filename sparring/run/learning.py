"""How a policy learns, as a section of the config."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sparring.run.sections import Section

Beta = Annotated[float, Field(ge=0, lt=1)]
Threshold = Annotated[float, Field(gt=0)]
ImportanceSampling = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
RolloutRejection = Literal[
    "token_k1",
    "token_k2",
    "token_k3",
    "seq_sum_k1",
    "seq_sum_k2",
    "seq_sum_k3",
    "seq_mean_k1",
    "seq_mean_k2",
    "seq_mean_k3",
    "seq_max_k2",
    "seq_max_k3",
]


class LearnConfig(Section):
    seats: list[str] | None = None  # whose turns train; None: every seat that is not frozen
    # Policies that learn and are called neither `main` nor like their seat (nor are in `begin`).
    policies: list[str] = Field(default_factory=list)
    objective: Literal["policy", "likelihood", "preference"] = "policy"  # likelihood: SFT; DPO
    weights: Literal["full", "lora"] = "lora"
    lora_r: int = Field(16, ge=1)
    lora_alpha: int = Field(32, ge=1)
    lora_dropout: float = Field(0.0, ge=0, lt=1)  # at work under likelihood and preference only
    quantize: Literal["8bit", "4bit"] | None = None  # LoRA's frozen base; 4bit: by bitsandbytes
    lr: float = Field(1e-5, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    lr_floor: float = Field(0.05, ge=0, le=1)  # share of lr that linear and cosine end at
    # Iterations that `schedule`, `entropy_end` and `kl_end` move over; None: all of the run.
    horizon: int | None = Field(None, ge=1)
    # Iterations; optimizer steps where there is no reward, or each iteration begins anew.
    warmup: int = Field(0, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.99)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    # What AdamW's moments are kept in; 8bit: by bitsandbytes.
    moments: Literal["float32", "bfloat16", "8bit"] = "float32"
    # Each iteration begins with the first weights, and its own schedule of lr, not with the last.
    restart: bool = False
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    batch: int | None = Field(None, ge=1)  # lessons per optimizer step, instead of minibatches
    micro_batch: int | None = Field(None, ge=1)  # at most so many lessons on the device at once
    tokens_per_batch: int = Field(16384, ge=1)
    packing: bool = False  # sequences one after another in a row; a shared prompt is read once
    gradient_checkpointing: bool = False  # layers are computed again in the backward pass
    # Layers by torch.compile, which takes half a minute the first time; None: on a GPU.
    compile: bool | None = None
    # Passes are captured and replayed; None: on a GPU, for models of less than 0.6 billion weights.
    cuda_graphs: bool | None = None
    # On a GPU, the same bits in gradients of long rows too: otherwise attention's backward adds
    # up in whatever order threads come, which is faster.
    deterministic: bool = False
    shard: bool = False  # the base model over all processes that learn, with FSDP2
    head_chunk: int = Field(1024, ge=1)
    clip_low: float = Field(0.2, ge=0)
    clip_high: float = Field(0.2, ge=0)
    ratio_cap: float | None = Field(None, gt=1)  # the most a token's importance ratio counts for
    aggregation: Literal["grpo", "bnpo", "dr_grpo", "dapo"] = "dapo"
    # The clip is of the ratio; under dppo_* of the probability's total variation or divergence.
    loss_mode: Literal["vanilla", "gspo", "cispo", "sapo", "dppo_tv", "dppo_kl"] = "vanilla"
    sapo_temperature_pos: float = Field(1.0, gt=0)
    sapo_temperature_neg: float = Field(1.05, gt=0)
    # Weights for what the engine sampled with another distribution than the learner's; the ratio
    # of the loss is then taken against the learner's own logprobs at the start of the iteration.
    importance_sampling_mode: ImportanceSampling | None = None
    importance_sampling_clip_min: float | None = Field(None, ge=0)
    importance_sampling_clip_max: float | None = Field(3.0, gt=0)
    # Rejected by the divergence of engine and learner: an upper bound; for k1 two bounds of ratios.
    rollout_rs: RolloutRejection | None = None
    rollout_rs_threshold: Threshold | tuple[Threshold, Threshold] = 2.0
    off_policy_mask_threshold: float | None = Field(None, ge=0)  # nats per token of a bad sequence
    entropy: float = Field(0.0, ge=0)  # bonus per nat; moves in a line to entropy_end, if given
    entropy_end: float | None = Field(None, ge=0)
    beta: float = Field(0.1, gt=0)  # of preference: how dearly leaving the reference is paid
    kl: float = Field(0.0, ge=0)  # 0: no reference; moves in a line to kl_end, if given
    kl_end: float | None = Field(None, ge=0)
    kl_correction: bool = True  # k3 times the ratio; without, its gradient is KL(ref ‖ π)'s
    kl_stop: float | None = Field(None, gt=0)  # nats moved since sampling that end the epochs
    value_weight: float = Field(0.5, ge=0)  # of the critic's loss, where credit is gae
    value_clip: float = Field(0.2, gt=0)
    critic_lr: float = Field(1e-3, gt=0)
    # ema: an exponential moving average of the weights (magnetic mirror descent); copy: the weights
    # of every so many iterations (R-NaD, NashPG); average: the mean of all weights so far; uniform:
    # every token alike.
    reference: Literal["base", "ema", "copy", "average", "uniform"] = "base"
    reference_rate: float = Field(0.05, gt=0, le=1)  # of ema, per iteration
    reference_every: int = Field(20, ge=1)  # of copy, in iterations

    @property
    def moving_reference(self) -> bool:
        """Whether the reference has weights of its own, which follow the policy's."""
        return self.regularized and self.reference in ("ema", "copy", "average")

    @property
    def regularized(self) -> bool:
        return max(self.kl, self.kl_end or 0.0) > 0

    @property
    def corrects(self) -> bool:
        """Whether the engine's logprobs and the learner's are kept apart."""
        return self.importance_sampling_mode is not None or self.rollout_rs is not None

    @model_validator(mode="after")
    def _quantized(self) -> Self:
        if self.quantize is not None and (self.weights == "full" or self.shard):
            raise ValueError(
                f"quantize {self.quantize} is for the frozen base of adapters, in one process: it "
                "goes with weights: lora, and not with shard"
            )
        return self

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        low, high = self.importance_sampling_clip_min, self.importance_sampling_clip_max
        if low is not None and high is not None and low >= high:
            raise ValueError(
                f"importance_sampling_clip_min ({low}) must be below importance_sampling_clip_max "
                f"({high})"
            )
        if self.importance_sampling_mode is not None and low is None and high is None:
            raise ValueError(
                f"importance_sampling_mode {self.importance_sampling_mode} needs a bound: "
                "importance_sampling_clip_min, importance_sampling_clip_max or both"
            )
        pair = isinstance(self.rollout_rs_threshold, tuple)
        if self.rollout_rs is not None and pair != self.rollout_rs.endswith("k1"):
            raise ValueError(
                "rollout_rs_threshold is two bounds of ratios for k1, such as [0.5, 2.0], and one "
                f"upper bound otherwise; rollout_rs is {self.rollout_rs}"
            )
        if isinstance(self.rollout_rs_threshold, tuple):
            lower, upper = self.rollout_rs_threshold
            if lower >= upper:
                raise ValueError(f"rollout_rs_threshold: {lower} must be below {upper}")
        return self
