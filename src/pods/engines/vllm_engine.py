"""The `vllm` engine: vLLM in this process, with its own copy of the weights that `sync` updates.

vLLM runs without a server and without workers, so that weights are passed by reference and a step
of the engine is a call that returns.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import torch
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason

from pods.config.schema import Config
from pods.engines.base import EngineFailed
from pods.engines.vllm_setup import TemperedLogits, facts, start_vllm
from pods.engines.vllm_sync import hand_over_adapter, merge
from pods.policy.fsdp import weights_version
from pods.policy.policy import Policy
from pods.seeding import derive
from pods.types import GenerationRequest, OnCompletion, Rollout, Sampling


@dataclass
class PartialCompletion:
    """A completion that vLLM is generating."""

    prompt_index: int  # index of the prompt in the request
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False  # ended by a stop id, not by the length limit

    def add(self, output: EngineCoreOutput) -> bool:
        """Append the tokens of one step of the engine; return whether they were the last ones."""
        if output.finish_reason not in (None, FinishReason.STOP, FinishReason.LENGTH):
            raise RuntimeError(f"a request ended by {output.finish_reason}")
        self.ids += output.new_token_ids
        self.logprobs += output.new_logprobs.logprobs[:, 0].tolist()
        self.stopped = output.finish_reason == FinishReason.STOP
        return output.finish_reason is not None


class VllmEngine:
    """Samples from a copy of the policy's weights, and refuses to if the copy is out of date."""

    def __init__(self, policy: Policy, config: Config, check: Callable[[], None]) -> None:
        """Start the engine on the untrained weights; `check()` may raise between tokens."""
        self.policy = policy
        self.check = check
        self.dtype = getattr(torch, config.engine.dtype)
        self.on_cpu = policy.device.type == "cpu"
        self.sync_by = config.engine.sync
        self.adapter: LoRARequest | None = None
        self.synced_version = -1
        self.survived_rounding: float | None = None
        self.calls = 0
        self.vllm = start_vllm(config)
        self.facts = facts(self.vllm)
        self.tempered = TemperedLogits(policy.vocabulary)
        self.vllm.apply_model(self.tempered.watch)
        self.sync()

        # the first call compiles and allocates
        first = GenerationRequest(
            prompts=[(0,)],
            n=2,
            sampling=Sampling(temperature=1.0, max_completion_tokens=2),
            seeds=[0],
        )
        self.generate(first)

    def sync(self) -> float | None:
        """Bring the policy's weights into the engine unless it has them; see `Engine.sync`."""
        version = weights_version(self.policy.model)
        if version == self.synced_version:
            return self.survived_rounding
        try:
            if self.sync_by == "adapter":
                self.adapter = hand_over_adapter(self.vllm, self.policy, self.dtype, self.adapter)
            else:
                self.survived_rounding = merge(self.vllm, self.policy, self.dtype)
        except Exception as error:
            raise EngineFailed(f"vLLM did not take new weights: {error!r}") from error

        self.synced_version = version
        return self.survived_rounding

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt; see `Engine.generate`.

        The prefix cache starts empty, so that earlier calls do not change how requests are batched
        and no key or value of older weights remains.

        Raises:
            EngineFailed: vLLM broke down.
            RuntimeError: the policy has changed since the last sync.
        """
        if weights_version(self.policy.model) != self.synced_version:
            raise RuntimeError("the policy has changed since vLLM was last synced with it")
        counters = list(request.seeds)
        first_row = request.drawn().start
        if first_row > 0:  # another process draws the first rows
            counters.append(first_row)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(derive(0, "call", *counters))
                completions = self._run(request, on_completion)
        except Exception as error:
            raise EngineFailed(f"vLLM broke down: {error!r}") from error

        groups: list[list[Rollout]] = [[] for _ in request.prompts]
        for completion in completions:
            rollout = Rollout(
                prompt_ids=request.prompts[completion.prompt_index],
                completion_ids=tuple(completion.ids),
                logprobs=np.array(completion.logprobs, np.float32),
                text=self._text(completion),
                finished=completion.stopped,
            )
            groups[completion.prompt_index].append(rollout)

        return groups

    def _text(self, completion: PartialCompletion) -> str:
        return str(self.policy.tokenizer.decode(completion.ids, skip_special_tokens=True))

    @torch.inference_mode()
    def _run(
        self, request: GenerationRequest, on_completion: OnCompletion | None
    ) -> list[PartialCompletion]:
        """Step the engine until everything is drawn; leave no request behind if anything raises.

        This drives vLLM's core and not its front end, which makes text and streams: for a small
        model that would take an eighth of the time.
        """
        core = self.vllm.engine_core
        self.tempered.temperature = request.sampling.temperature
        completions: dict[str, PartialCompletion] = {}
        if not core.reset_prefix_cache():
            raise RuntimeError("its prefix cache is in use")
        try:
            for index, core_request in self._core_requests(request):
                completions[core_request.request_id] = PartialCompletion(index)
                core.add_request(core_request)
            unfinished = len(completions)
            while unfinished:
                self.check()
                for output in core.get_output().outputs:
                    completion = completions.get(output.request_id)
                    if completion is None:  # a request of a cancelled call
                        continue
                    if completion.add(output):
                        unfinished -= 1
                        if on_completion is not None:
                            on_completion(completion.prompt_index, self._text(completion))
        except BaseException:
            with suppress(Exception):  # a broken engine may refuse even this
                core.abort_requests(list(completions))
            raise

        return list(completions.values())

    def _core_requests(self, request: GenerationRequest) -> Iterator[tuple[int, EngineCoreRequest]]:
        """Yield a prompt's index and a request for each completion, split as vLLM itself does."""
        rows = request.drawn()
        self.calls += 1  # ids are used once
        for number, (prompt, seed) in enumerate(zip(request.prompts, request.seeds, strict=True)):
            template = self.vllm.input_processor.process_inputs(
                str(number),
                {"prompt_token_ids": list(prompt)},
                self.sampling_params(request.n, request.sampling, seed),
                supported_tasks=self.vllm.get_supported_tasks(),
                lora_request=self.adapter,
            )
            first = number * request.n
            for i in range(max(rows.start - first, 0), min(rows.stop - first, request.n)):
                core_request = copy(template)
                core_request.request_id = f"{self.calls}-{number}-{i}"
                core_request.sampling_params = copy(template.sampling_params)
                core_request.sampling_params.n = 1
                if not self.on_cpu:
                    core_request.sampling_params.seed = seed + i
                yield number, core_request

    def sampling_params(self, n: int, sampling: Sampling, seed: int) -> SamplingParams:
        """Translate the sampling settings; on a GPU each request has a seed, on a CPU the call has.

        On a CPU a request with a seed costs a call into torch for every token, and raises if its
        prompt is prefilled in two parts, since torch's CPU generator cannot be set back.
        """
        return SamplingParams(
            n=n,
            temperature=0.0 if sampling.temperature == 0 else 1.0,  # `TemperedLogits` divides by it
            max_tokens=sampling.max_completion_tokens,
            top_k=sampling.top_k or 0,  # all
            seed=None if self.on_cpu else seed,
            stop_token_ids=self.policy.stop_ids,
            logprobs=0,  # only of the token drawn
            detokenize=False,
        )
