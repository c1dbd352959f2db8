"""The one exception for what can't be done as asked."""


class Refused(Exception):
    """A stable `code` for programs, and a sentence for people. `retry_after`: when to try again, in seconds."""

    def __init__(self, code: str, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.retry_after = retry_after
