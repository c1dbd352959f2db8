"""The running of a command. Every error becomes a sentence and an exit code."""

import io
import json
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from batch_query_client import BatchQueryError, BatchRejected, Fault, ServiceRefused, __version__
from batch_query_client.command_line import account_commands, batch_commands, proof_commands
from batch_query_client.command_line.asked_in_files import InvalidFile, bounded
from batch_query_client.command_line.credentials import MissingKey
from batch_query_client.command_line.exit_codes import ExitCode, exit_code


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(version)s")
def bqs() -> None:
    """Ask a Batch Query Service for facts about chains, and follow, read and verify them.

    A command uses the service of its --url, of BQS_URL, or of the last `bqs login`. The key is BQS_API_KEY, or that of
    the login.
    """


for command in (*account_commands.COMMANDS, *batch_commands.COMMANDS, *proof_commands.COMMANDS):
    bqs.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    # A closed stream is none.
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115 (it is used until the process ends)
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal may have few letters.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Scripts and files of Windows leave a carriage return behind each value, and a byte order mark before the first.
    for name in [name for name in os.environ if name.startswith("BQS_")]:
        os.environ[name] = os.environ[name].strip("\ufeff \t\r\n")
    arguments = [argument.removesuffix("\r") for argument in arguments]
    try:
        ended = bqs.main(args=arguments, prog_name="bqs", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        # The reader of the output has closed it, for which click exits. Without this line, Python would report the same
        # error when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
        return ExitCode.OK
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (every error becomes a sentence)
        report = _report(error)
        # The stream of errors may be on a full disk, too.
        with suppress(OSError):
            click.echo(json.dumps(report.as_json()) if "--json" in arguments else report.as_text(), err=True)
        return report.exit_code
    return ended if isinstance(ended, int) else ExitCode.OK


_NOT_UTF_8 = "An argument or a file is not UTF-8 text: save it as UTF-8."
# Sentences that replace the service's, which mention the API's headers and paths.
_BY_OPTIONS = {
    "unauthorized": "The API key is missing or doesn't work. Run `bqs login URL`, or set BQS_API_KEY.",
    "read_only_key": "This API key may only read. Run `bqs login URL` for one with full access, or set BQS_API_KEY.",
    "invalid_idempotency_key": "--idempotency-key takes 1 to 255 printable ASCII characters.",
    "idempotency_key_reused": "Another batch was submitted with this --idempotency-key. Give each batch its own.",
}


@dataclass(frozen=True)
class _ErrorReport:
    """An error's code, sentence and details, for printing."""

    sentence: str
    exit_code: ExitCode
    code: str
    """A stable word: the service's, if it has one."""
    usage: str = ""
    faults: Sequence[Fault] = ()
    rejected: BatchRejected | None = None
    names_faults: bool = False
    """True if the sentence names all faults."""

    def as_json(self) -> dict[str, object]:
        fields: dict[str, object] = {"error": self.sentence, "code": self.code}
        if self.rejected:
            fields |= {"internalId": self.rejected.internal_id, "retryable": self.rejected.retryable}
        if self.faults:
            fields["details"] = [
                {"path": fault.path, "message": fault.message, "code": fault.code} for fault in self.faults
            ]
        return fields

    def as_text(self) -> str:
        details = [] if self.names_faults else [f"{fault.path}: {fault.message}" for fault in self.faults]
        shown = [f"  {detail}" for detail in bounded(details) if len(details) > 1]
        return "\n".join(filter(None, [self.usage, self.sentence, *shown]))


def _report(error: BaseException) -> _ErrorReport:
    match error:
        case BatchQueryError():
            code = getattr(error, "code", "") or exit_code(error).name.lower()
            faults = error.faults if isinstance(error, ServiceRefused) else ()
            rejected = error if isinstance(error, BatchRejected) else None
            sentence = _BY_OPTIONS.get(code, str(error)).replace("/chain-connections", "`bqs chains`")
            return _ErrorReport(sentence, exit_code(error), code, faults=faults, rejected=rejected)
        case click.ClickException():
            exits = ExitCode.NOT_ALLOWED if isinstance(error, MissingKey) else ExitCode.USAGE
            refused = error.refused if isinstance(error, InvalidFile) else None
            code, faults = (refused.code, refused.faults) if refused else ("usage", ())
            return _ErrorReport(error.format_message(), exits, code, _usage(error), faults, names_faults=bool(refused))
        case click.Abort() | KeyboardInterrupt():
            return _ErrorReport("Interrupted.", ExitCode.INTERRUPTED, "interrupted")
        case OSError(strerror=str() as why):
            return _ErrorReport(f"{error.filename or 'The output'}: {why}.", ExitCode.USAGE, "file")
        case ValueError():
            # The library raises this for an invalid argument, with a sentence. Python's words about codecs are none.
            sentence = _NOT_UTF_8 if isinstance(error, UnicodeError) else str(error)
            return _ErrorReport(sentence, ExitCode.USAGE, "usage")
    return _ErrorReport(_defect(error), ExitCode.DEFECT, "defect")


def _usage(error: click.ClickException) -> str:
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return ""
    return error.ctx.get_usage()


def _defect(error: BaseException) -> str:
    if os.environ.get("BQS_DEBUG"):
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "bqs"
    return f"This is a defect of bqs: {type(error).__name__} in {where}. BQS_DEBUG=1 shows more."
