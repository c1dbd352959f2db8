"""Values of the chains file that several of its tables have: addresses, URLs and paths of files.

The validation context has the environment and the file's folder.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from chains.encoding import checksummed

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Table(BaseModel):
    """A table of the chains file. Its validation context has the environment and the file's folder."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


def variable(name: str, environ: Mapping[str, str]) -> str:
    """Return the value of the variable, or else the content of the file that the variable `<name>_FILE` names."""
    if value := environ.get(name):
        return value
    if path := environ.get(f"{name}_FILE"):
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"the file that {name}_FILE names can't be read") from None
        if not value:
            raise ValueError(f"the file that {name}_FILE names is empty")
        return value
    raise ValueError(f"neither {name} nor {name}_FILE is set in the environment")


def file_path(written: object, info: ValidationInfo) -> object:
    folder: Path = (info.context or {}).get("folder", Path())
    return folder / Path(written).expanduser() if isinstance(written, str) and written else written


def _address(written: str) -> str:
    checked = checksummed(written)
    if checked is None:
        raise ValueError(
            "must be 0x and 40 hexadecimal digits, with the right EIP-55 checksum if they are in mixed case"
        )
    return checked


def rpc_url(written: str, info: ValidationInfo) -> str:
    environ: Mapping[str, str] = (info.context or {}).get("environ", {})
    url = VARIABLE.sub(lambda match: variable(match[1], environ), written)
    if not is_http_url(url) or "${" in url:
        raise ValueError("must be an http or https URL (it is not shown, since it may hold a key)")
    return url


def is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(
            parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and not re.search(r"\s", url)
        )
    except ValueError:
        return False


def host_of(url: str) -> str:
    """Return the URL's host and port, for messages: other parts may be secret."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{host}:{parts.port}" if parts.port else host


Address = Annotated[str, AfterValidator(_address)]
RpcUrl = Annotated[str, AfterValidator(rpc_url)]
FilePath = Annotated[Path, BeforeValidator(file_path)]
