"""Prompts and environment messages of several parts: text, images, audio."""

import verifiers as vf
from datasets import Dataset

PIXEL = "data:image/png;base64,iVBORw0KGgo="
ROWS = [
    {
        "prompt": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is 2 + 3?"},
                    {"type": "image_url", "image_url": {"url": PIXEL}},
                ],
            }
        ],
        "answer": "5",
    }
]


class Album(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
        image = {"type": "image_url", "image_url": {"url": PIXEL}}
        return [{"role": "user", "content": [{"type": "text", "text": "And what is 4 + 4?"}, image, sound]}]


def images_seen(prompt, completion):
    contents = [message.content for message in [*prompt, *completion] if isinstance(message.content, list)]
    return sum(part["type"] == "image_url" for content in contents for part in content)


def last_answer(completion):
    return float(vf.extract_boxed_answer(completion[-1]["content"]))


def load_environment():
    rubric = vf.Rubric(funcs=[images_seen, last_answer])
    return Album(dataset=Dataset.from_list(ROWS), rubric=rubric, max_turns=2)
