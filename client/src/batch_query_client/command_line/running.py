"""Runs a command and makes a sentence and an exit code of whatever goes wrong."""

import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from batch_query_client import BatchQueryError, BatchRejected, Fault, ServiceRefused
from batch_query_client.command_line import account_commands, batch_commands, proof_commands
from batch_query_client.command_line.exit_codes import ExitCode, exit_code


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="batch-query-client", message="%(version)s")
def bqs() -> None:
    """Ask a Batch Query Service for facts about chains, follow, read and verify them.

    The service is the one of the last `bqs login`, or of --url or BQS_URL. The key is that of the login, or
    BQS_API_KEY.
    """


for command in (*account_commands.COMMANDS, *batch_commands.COMMANDS, *proof_commands.COMMANDS):
    bqs.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    is_json = "--json" in arguments
    try:
        ended = bqs.main(args=list(arguments), prog_name="bqs", standalone_mode=False)
        sys.stdout.flush()
    except BatchQueryError as error:
        _say(str(error), is_json, code=getattr(error, "code", ""), error=error)
        return exit_code(error)
    except click.ClickException as error:
        _say(error.format_message(), is_json, code="usage", usage=error)
        return ExitCode.USAGE
    except ValueError as error:
        # What can't be asked, as the library says it.
        _say(str(error), is_json, code="usage")
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        _say("Interrupted.", is_json, code="interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has enough. Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except OSError as error:
        _say(f"{error.filename or 'A file'}: {error.strerror}.", is_json, code="file")
        return ExitCode.USAGE
    except Exception as error:  # noqa: BLE001 (whoever uses a command line is told in a sentence)
        _say(_defect(error), is_json, code="defect")
        return ExitCode.DEFECT
    return ended if isinstance(ended, int) else ExitCode.OK


def _say(
    sentence: str,
    is_json: bool,  # noqa: FBT001 (all who call it are above)
    *,
    code: str,
    error: BatchQueryError | None = None,
    usage: click.ClickException | None = None,
) -> None:
    faults: Sequence[Fault] = error.faults if isinstance(error, ServiceRefused) else ()
    if is_json:
        said: dict[str, object] = {"error": sentence, "code": code}
        if isinstance(error, BatchRejected):
            said |= {"internalId": error.internal_id, "retryable": error.retryable}
        if faults:
            said["details"] = [{"path": one.path, "message": one.message, "code": one.code} for one in faults]
        print(json.dumps(said), file=sys.stderr)
        return
    if isinstance(usage, click.UsageError) and usage.ctx is not None:
        print(f"Usage: {usage.ctx.command_path} {' '.join(usage.ctx.command.collect_usage_pieces(usage.ctx))}", file=sys.stderr)
    print(sentence, file=sys.stderr)
    if len(faults) > 1:
        for one in faults:
            print(f"  {one.path}: {one.message}", file=sys.stderr)


def _defect(error: Exception) -> str:
    if os.environ.get("BQS_DEBUG"):
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "bqs"
    return f"This is a defect of bqs: {type(error).__name__} in {where}. BQS_DEBUG=1 shows more."
