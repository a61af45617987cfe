"""``JudgeRubric``: another model decides whether an answer is correct."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from nightjar.clients import Client, ClientConfig, resolve_client
from nightjar.clients.credentials import key_hidden
from nightjar.clients.providers import key_variable
from nightjar.core.calling import call
from nightjar.core.calling.decorators import teardown
from nightjar.core.home import read_config
from nightjar.core.messages import Messages, Response, UserMessage
from nightjar.core.rollout.state import State
from nightjar.core.rollout.usage import usage_counts
from nightjar.environments.parsers import Parser, last_text, message_text, without_thoughts
from nightjar.environments.rubrics.rubric import Rubric
from nightjar.errors import ConfigError, EmptyModelResponseError, JudgeVerdictError, ModelError, RunError

_MARKUP = re.compile(r"[*`’']|\\boxed|(?<=\s)-+(?=\s)")
_CLAUSE = re.compile(r"([^.,:;!?\n(){}\[\]/—–\"“”]+)(\??)")
_LEAD = (  # words that may come before a verdict in its clause; "not" is none of them
    r"(?:(?i:so|and|or|therefore|thus|hence|overall|maybe|perhaps|rather|i|would|will|say|choose|give|graded?|the"
    r"|this|that|it|is|was|be|as|my|final|models|answer|response|reply|verdict|letter|option|choice|question)\b\s*)*"
    r"(?:an? )?"
)
_REASON = r"(?:\s+(?:because|since|as|given)\b.*)?"
_TAKES_BACK = re.compile(r"(?i)(?:but|except|however|although|though|if|had|unless|partly|only)\b")
_DOUBT = re.compile(r"(?i)no|not|wait|unsure|hm+")
DEFAULT_JUDGE_PROMPT = """\
Decide whether a response gives the right answer to a question. The ground truth answer is right; \
a response that says the same in other words is right, too.

Question:
```
{question}
```

Ground truth answer:
```
{answer}
```

Response:
```
{response}
```

Is the response right? Reply with "yes" or "no", and nothing else."""
_OPENAI_URL = "https://api.openai.com/v1"


def the_verdict(reply: str, verdicts: Mapping[str, str], what: str = "verdict") -> str:
    """Returns the verdict that a judge's reply begins or ends with. Raises ``JudgeVerdictError`` if none is clear.

    A verdict that is questioned, withdrawn or contradicted is not clear. Thoughts are ignored. ``verdicts`` maps
    each possible verdict, in lower case, to its meaning.
    """
    names = "|".join(sorted(map(re.escape, verdicts), key=len, reverse=True))
    verdict = re.compile(rf"{_LEAD}(?i:({names})){_REASON}")
    plain = _MARKUP.sub(lambda found: ";" if "-" in found[0] else "", without_thoughts(reply).replace("_", " "))
    clauses = [(clause.strip(), mark) for clause, mark in _CLAUSE.findall(plain) if clause.strip()]
    found = [verdict.fullmatch(clause) for clause, _ in clauses]
    is_asked = any(said and mark for said, (_, mark) in zip(found, clauses, strict=True))
    is_taken_back = any(said and _TAKES_BACK.match(after) for said, (after, _) in zip(found, clauses[1:], strict=False))
    is_doubted = is_asked or is_taken_back or any(_DOUBT.fullmatch(clause) for clause, _ in clauses)
    is_said = not is_doubted and any(found[:1] + found[-1:])
    return the_only({verdicts[said[1].lower()] for said in found if said} if is_said else set(), what, reply)


def the_only(found: set[str], what: str, reply: str) -> str:
    if len(found) != 1:
        raise JudgeVerdictError(f"The judge gave {'more than one' if found else 'no'} {what}: {reply[:200]!r}")
    return next(iter(found))


class JudgeRubric(Rubric):
    """Asks a model whether an answer is correct; reward functions turn its reply into a score.

    Reward functions get ``judge`` and the ``judge_…`` arguments. A rollout that cannot be judged has an error and no
    reward.

    Args:
        judge_client: an OpenAI client, a ``Client``, or a ``ClientConfig``. By default, the URL in ``OPENAI_BASE_URL``
            (OpenAI if it is not set) with the key in ``OPENAI_API_KEY``, which is not needed before the first request.
        judge_prompt: a text with the fields ``{question}``, ``{answer}`` and ``{response}``.

    Example:
        >>> import asyncio
        >>> from nightjar.core.rollout.state import State
        >>> from nightjar.model_server import FixedAnswer, ModelServer
        >>> async def right(judge, prompt, completion, answer, state):
        ...     return float("yes" in await judge(prompt, completion, answer, state))
        >>> async def main():
        ...     with ModelServer(FixedAnswer("yes")) as server:
        ...         rubric = JudgeRubric(judge_client=ClientConfig(api_base_url=server.base_url))
        ...         rubric.add_reward_func(right)
        ...         state = State(input={"prompt": "Capital of France?", "answer": "Paris", "example_id": 0})
        ...         state["completion"] = "It is Paris."
        ...         await rubric.score_rollout(state)
        ...         await rubric.teardown()
        ...     return state["reward"]
        >>> asyncio.run(main())
        1.0
    """

    def __init__(
        self,
        parser: Parser | None = None,
        parallelize_scoring: bool = False,  # noqa: ARG002
        judge_client: Any = None,
        judge_model: str = "gpt-4.1-nano",
        judge_sampling_args: Mapping[str, Any] | None = None,
        judge_prompt: str = DEFAULT_JUDGE_PROMPT,
    ) -> None:
        super().__init__(parser=parser)
        is_made_here = judge_client is None or isinstance(judge_client, ClientConfig)
        self.judge_client = _LazyClient(judge_client) if is_made_here else judge_client
        self.judge_model = judge_model
        self.judge_prompt = judge_prompt
        self.judge_sampling_args = dict(judge_sampling_args or {})
        self.max_retries = 10
        self._resolved: tuple[Any, Any] | None = None
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        for name in ("judge", "judge_client", "judge_model", "judge_prompt", "judge_sampling_args"):
            self.add_class_object(name, getattr(self, name))

    async def judge(
        self,
        prompt: Messages | str,
        completion: Messages | str,
        answer: str,
        state: State | None = None,
        **further: Any,  # noqa: ARG002 - older reward functions pass on all that they get
    ) -> str:
        """Returns the judge's reply about the answer to the last user message; ignores further keyword arguments.

        With a ``state``, a request is sent only once: ``state["judge_response"]`` keeps each reply by its prompt, and
        ``state["judge_usage"]`` keeps the numbers of tokens.
        """
        question = prompt if isinstance(prompt, str) else last_text(prompt, "user")
        response = self.parser.parse_answer(completion)
        text = self.judge_prompt.format(question=question, answer=answer, response=response)
        if state is None:
            return (await self._ask(text))[0]
        lock = self._locks.setdefault((id(state), text), asyncio.Lock())
        async with lock:
            return await self._ask_once(text, state)

    async def _ask_once(self, text: str, state: State) -> str:
        known = _earlier_replies(state)
        if text not in known:
            said, usage = await self._ask(text)
            known = state["judge_response"] = {**_earlier_replies(state), text: said}
            before = state.get("judge_usage") or {}
            state["judge_usage"] = {side: before.get(side, 0) + tokens for side, tokens in usage.items()}
        return known[text]

    async def _ask(self, text: str) -> tuple[str, dict[str, int]]:
        try:
            response = await self._request(text)
        except RunError:
            raise
        except Exception as error:  # the client may be of any kind
            raise ModelError(f"Judge model {self.judge_model!r}: {error or type(error).__name__}") from error
        counts = usage_counts(response.usage)
        return _reply_text(response), dict(zip(("input_tokens", "output_tokens"), counts, strict=True))

    async def _request(self, text: str) -> Any:
        client, sampling = self._resolved_client(), dict(self.judge_sampling_args)
        if isinstance(client, Client):
            response: Any = await client.get_response([UserMessage(content=text)], self.judge_model, sampling)
        else:
            create = client.chat.completions.create
            given = {name: value for name, value in sampling.items() if value is not None}
            if "max_tokens" in given:
                given["max_completion_tokens"] = given.pop("max_tokens")
            with key_hidden(client):
                response = await call(
                    create, model=self.judge_model, messages=[{"role": "user", "content": text}], **given
                )
        if not _reply_text(response).strip():
            raise EmptyModelResponseError("it said nothing")
        return response

    def _resolved_client(self) -> Any:
        given = self.judge_client.made() if isinstance(self.judge_client, _LazyClient) else self.judge_client
        if self._resolved is None or self._resolved[0] is not given:
            try:
                client = resolve_client(given)
            except ConfigError:
                client = given
            if client is not self.judge_client and isinstance(client, Client):
                client.max_retries, client.is_last_resort = self.max_retries, True
            self._resolved = given, client
        return self._resolved[1]

    @teardown
    async def close_client(self) -> None:
        """Closes the client that this rubric created. The next request creates a new client."""
        if isinstance(self.judge_client, _LazyClient):
            await self.judge_client.forget()


def judge_config(base_url: str | None = None, api_key_var: str | None = None) -> ClientConfig:
    """Returns the endpoint of a judge, by default OpenAI's.

    Raises ``ConfigError`` if ``api_key_var`` is not given and no known key belongs to the host.
    """
    url = base_url or _OPENAI_URL
    return ClientConfig(api_base_url=url, api_key_var=api_key_var or key_variable(url))


def chosen_judge_settings(
    model: str | None, base_url: str | None = None, api_key_var: str | None = None
) -> dict[str, str] | None:
    """Returns model, base_url and api_key_var of a judge, as far as they are known; None without a judge.

    If ``model`` is None, the user's configured judge is taken. A key of the configuration is not taken to the endpoint
    that ``base_url`` names. Raises ``ConfigError`` for an endpoint without a model.
    """
    given = {"judge_base_url": base_url, "judge_api_key_var": api_key_var}
    named = {name.removeprefix("judge_"): value for name, value in given.items() if value is not None}
    own: dict[str, str] = {} if model is not None else read_config().get("judge", {})
    if not (model := model or own.get("model")):
        if named:
            names = ", ".join(name for name, value in given.items() if value is not None)
            raise ConfigError(f"{names}: name the model of the judge as well, with judge_model")
        return None
    return {**({} if base_url else own), **named, "model": model}


class _LazyClient:
    """A client that is created on first use, so that its key is not needed before."""

    def __init__(self, config: ClientConfig | None) -> None:
        self._config = config
        self._client: Any = None

    def made(self) -> Any:
        if self._client is None:
            url = os.environ.get("OPENAI_BASE_URL") or _OPENAI_URL
            self._client = resolve_client(self._config or ClientConfig(api_base_url=url, api_key_var="OPENAI_API_KEY"))
        return self._client

    async def forget(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def __getattr__(self, name: str) -> Any:
        client = self.made()
        return getattr(client if self._config else client.client, name)


def _reply_text(response: Any) -> str:
    return message_text(response.message if isinstance(response, Response) else response.choices[0].message)


def _earlier_replies(state: State) -> dict[str, str]:
    """Returns the judge's earlier replies by prompt; empty if an environment uses ``judge_response`` otherwise."""
    said = state.get("judge_response")
    return said if isinstance(said, dict) else {}
