"""Run the client's steps with a test's answers, on a simulated clock."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from batch_query_client.asking import Patience
from batch_query_client.effects import HttpAnswer, Now, Pause, ProviderCall, Request, Steps, Tell, Unreachable

# Pauses are random in use. Here each is half of its maximum.
PATIENCE = Patience(chance=lambda: 0.5)

Answers = HttpAnswer | Unreachable | Callable[[Request], HttpAnswer]


def answer(status: int = 200, value: Any = None, *, after: float = 0, **headers: str) -> HttpAnswer:
    """Return an answer with JSON that arrives `after` this many seconds."""
    fields = [(name.replace("_", "-"), text) for name, text in headers.items()]
    return HttpAnswer(status, (*fields, ("x-after", str(after))), b"" if value is None else json.dumps(value).encode())


class World:
    def __init__(self, *answers: Answers) -> None:
        self._answers: Iterator[Answers] = iter(answers)
        self.requests: list[Request] = []
        self.pauses: list[float] = []
        self.seconds = 0.0

    def run(self, steps: Steps[Any]) -> Any:
        send, value = steps.send, None
        while True:
            try:
                effect = send(value)
            except StopIteration as stop:
                return stop.value
            send, value = steps.send, None
            match effect:
                case Request():
                    value = self._answer(effect)
                    if isinstance(value, Unreachable):
                        send = steps.throw
                case Pause() if effect.seconds > 0:
                    self.pauses.append(effect.seconds)
                    self.seconds += effect.seconds
                case Now():
                    value = self.seconds
                case Tell():
                    value = effect.function(effect.value)
                case ProviderCall():
                    value = effect.provider.make_request(effect.method, effect.parameters)

    def _answer(self, request: Request) -> Any:
        self.requests.append(request)
        response = next(self._answers)
        response = response(request) if callable(response) else response
        if isinstance(response, HttpAnswer):
            self.seconds += float(response.header("x-after") or 0)
        return response
