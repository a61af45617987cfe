"""``JudgeRubric``: another model says whether an answer is right."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from nightjar.calling import call
from nightjar.calling.decorators import teardown
from nightjar.clients import Client, ClientConfig, resolve_client
from nightjar.clients.credentials import key_hidden
from nightjar.errors import ConfigError, EmptyModelResponseError, ModelError, RunError
from nightjar.messages import Messages, Response, UserMessage
from nightjar.parsers import Parser
from nightjar.parsers.parser import message_text
from nightjar.rollout.state import State
from nightjar.rollout.usage import usage_counts
from nightjar.rubrics.rubric import Rubric

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


class JudgeRubric(Rubric):
    """Asks a model whether an answer is right; reward functions make a score of what it says.

    Reward functions get ``judge``, and ``judge_client``, ``judge_model``, ``judge_prompt`` and
    ``judge_sampling_args``. A rollout that cannot be judged has an error, and no reward.

    Args:
        parser: takes the response out of a completion.
        parallelize_scoring: accepted for compatibility; rollouts are always judged side by side.
        judge_client: where the judge is: an ``AsyncOpenAI`` or another OpenAI client, a ``Client``, or a
            ``ClientConfig``. Unless given, OpenAI, or ``OPENAI_BASE_URL``, with the key in ``OPENAI_API_KEY``; the key
            is needed when the judge is first asked.
        judge_model: its name there.
        judge_sampling_args: ``temperature``, ``max_tokens`` and so on; None values are left out.
        judge_prompt: with places for ``{question}``, ``{answer}`` and ``{response}``.

    Attributes:
        max_retries: further attempts after errors that can heal.
        retry_seconds: wait before the first of them; doubled for each further one.

    Example:
        >>> import asyncio
        >>> from nightjar.rollout.state import State
        >>> from nightjar.testing import FixedAnswer, ModelServer
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
        self._known: tuple[Any, Any] | None = None
        self._asking: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        for name in ("judge", "judge_client", "judge_model", "judge_prompt", "judge_sampling_args"):
            self.add_class_object(name, getattr(self, name))

    async def judge(
        self,
        prompt: Messages | str,
        completion: Messages | str,
        answer: str,
        state: State | None = None,
        **further: Any,  # noqa: ARG002 - what reward functions are given, and older ones pass on
    ) -> str:
        """Returns what the judge says of an answer; further keyword arguments are ignored.

        The question is the text of the last user message. With a ``state``, the judge is asked the same only once:
        what it said is kept in ``state["judge_response"]``, by its prompt, and the tokens in ``state["judge_usage"]``.

        Raises:
            ModelError: the judge gave no usable answer, also not to further attempts where those could help.
        """
        question = prompt if isinstance(prompt, str) else _last_user_text(self.parser, prompt)
        response = self.parser.parse_answer(completion)
        text = self.judge_prompt.format(question=question, answer=answer, response=response)
        if state is None:
            return (await self._ask(text))[0]
        lock = self._asking.setdefault((id(state), text), asyncio.Lock())
        async with lock:
            return await self._ask_once(text, state)

    async def _ask_once(self, text: str, state: State) -> str:
        known = _said_before(state)
        if text not in known:
            said, usage = await self._ask(text)
            known = state["judge_response"] = {**_said_before(state), text: said}
            before = state.get("judge_usage") or {}
            state["judge_usage"] = {side: before.get(side, 0) + tokens for side, tokens in usage.items()}
        return known[text]

    async def _ask(self, text: str) -> tuple[str, dict[str, int]]:
        """Returns what the judge says, and its tokens; asks again after errors that can heal."""
        try:
            response = await self._request(text)
        except RunError:
            raise
        except Exception as error:  # whatever client this is
            raise ModelError(f"Judge model {self.judge_model!r}: {error or type(error).__name__}") from error
        counts = usage_counts(response.usage)
        return _said(response), dict(zip(("input_tokens", "output_tokens"), counts, strict=True))

    async def _request(self, text: str) -> Any:
        client, sampling = self._asked(), dict(self.judge_sampling_args)
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
        if not _said(response).strip():
            raise EmptyModelResponseError("it said nothing")
        return response

    def _asked(self) -> Any:
        """Returns the judge as a ``Client``; as it is, where it is neither that nor an official SDK's."""
        given = self.judge_client.made() if isinstance(self.judge_client, _LazyClient) else self.judge_client
        if self._known is None or self._known[0] is not given:
            try:
                client = resolve_client(given)
            except ConfigError:
                client = given
            if client is not self.judge_client and isinstance(client, Client):
                client.max_retries, client.is_last_resort = self.max_retries, True
            self._known = given, client
        return self._known[1]

    @teardown
    async def close_client(self) -> None:
        """Closes the client that was made here, if it was; it is made anew when it is needed."""
        if isinstance(self.judge_client, _LazyClient):
            await self.judge_client.forget()


class _LazyClient:
    """A client that is made on first use, so that no key is needed before.

    Stands for the client: its attributes are those of the client.
    """

    def __init__(self, config: ClientConfig | None) -> None:
        self._config = config
        self._client: Any = None

    def made(self) -> Any:
        """Returns the client."""
        if self._client is None:
            url = os.environ.get("OPENAI_BASE_URL") or _OPENAI_URL
            self._client = resolve_client(self._config or ClientConfig(api_base_url=url, api_key_var="OPENAI_API_KEY"))
        return self._client

    async def forget(self) -> None:
        """Closes the client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def __getattr__(self, name: str) -> Any:
        client = self.made()
        return getattr(client if self._config else client.client, name)


def _said(response: Any) -> str:
    """Returns the text of an answer: Nightjar's, or an OpenAI client's."""
    return message_text(response.message if isinstance(response, Response) else response.choices[0].message)


def _said_before(state: State) -> dict[str, str]:
    """Returns what the judge said in a rollout, by its prompt; nothing where an environment keeps something else."""
    said = state.get("judge_response")
    return said if isinstance(said, dict) else {}


def _last_user_text(parser: Parser, prompt: Messages) -> str:
    asked = parser.get_user_messages(prompt)
    return message_text(asked[-1]) if asked else ""
