"""The part of a slot's word that the batch's sender states, in words and in code of each language."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from batch_query_client.amounts import answer_type, is_amount
from batch_query_client.stated_words import symbol
from explorer.formatting.amounts import whole_units
from queries.storage_layout import Part

_Kind = Literal["number", "address", "bytes", "bool"]
_BITS_OF_WORD, _BITS_OF_ADDRESS = 256, 160
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class StatedPart:
    """A part of a slot's word, or the whole word."""

    part: Part
    kind: _Kind
    decimals: int
    symbol: str
    """The unit of an amount by the token's own claim. Empty: none is stated."""

    @classmethod
    def of(cls, name: Mapping[str, Any]) -> "StatedPart":
        part, kind = Part.stated(name), cls._kind(name)
        is_number = kind == "number"
        unit = symbol(name) if is_number and "decimals" in name else ""
        return cls(part, kind, name.get("decimals", 0) if is_number else 0, unit)

    @staticmethod
    def _kind(name: Mapping[str, Any]) -> _Kind:
        if is_amount(name):
            return "number"
        part = Part.stated(name)
        match part.form:
            case "bool":
                return "bool"
            case "left":
                return "bytes"
        # Other numbers of this size have decimals, or a type.
        is_alike = part == Part(part.offset, _BITS_OF_ADDRESS) and not name.get("decimals")
        is_address = answer_type(name) == "address" or is_alike
        return "address" if is_address else "number"

    @property
    def bits(self) -> str:
        """Return the part's place in words. Empty: it is the whole word."""
        last = self.part.offset + self.part.size - 1
        return "" if self.part.is_whole else f"in bits {self.part.offset} to {last}"

    def text(self, word: int) -> str:
        number = self._number(word)
        match self.kind:
            case "bool":
                return str(bool(number)).lower()
            case "address" | "bytes":
                return f"0x{number:0{self._digits}x}"
        return str(number)

    def divided(self, word: int) -> str:
        """Return the number in whole units, with all its digits."""
        number = self._number(word)
        return whole_units(number, self.decimals)

    def _number(self, word: int) -> int:
        return self.part.number(word, is_amount=self.kind == "number")

    @property
    def claim(self) -> str:
        """Return a note about the symbol, for titles. Empty: there is none."""
        return "as claimed" if self.symbol else ""

    @property
    def division(self) -> str:
        claim = f", {self.symbol} by the token's own claim" if self.symbol else ""
        return f"divided by 10{str(self.decimals).translate(_SUPERSCRIPTS)}{claim}, as its sender says"

    # Code

    @property
    def solidity_type(self) -> str:
        if self.kind == "bytes":
            return f"bytes{self.part.size // 8 if self.part.size % 8 == 0 else 32}"
        return self.kind if self.kind != "number" else "int256" if self._is_signed else "uint256"

    def in_solidity(self, word: str) -> str:
        """Return the part of a variable or a call of the type bytes32."""
        offset, size = self.part.offset, self.part.size
        if self._is_signed:
            left = f"uint256({word}){_shift('<<', self._above)}"
            return f"int256({left}){_shift('>>', _BITS_OF_WORD - size)}"
        if self.kind == "bytes":
            left = f"{word}{_shift('>>', offset)}{_shift('<<', _BITS_OF_WORD - size)}"
            return f"{self.solidity_type}({left})"
        number = f"uint256({word}){_shift('>>', offset)}"
        if self._above and not (self.kind == "address" and size == _BITS_OF_ADDRESS):
            number = f"{_grouped(number)} & (2 ** {size} - 1)"
        if self.kind == "address":
            return f"address(uint160({number}))"
        match self.part.form, self.kind:
            case "bool", kind:
                return f"{_grouped(number)} != 0{' ? 1 : 0' if kind == 'number' else ''}"
            case "left", _:
                return f"{_grouped(number)}{_shift('<<', _BITS_OF_WORD - size)}"
        return number

    @property
    def in_typescript(self) -> str:
        """Return the part of `word`, hexadecimal digits."""
        number = f"BigInt(word){_shift('>>', self.part.offset, 'n')}"
        if self._above or self._is_signed:
            number = f"BigInt.as{'Int' if self._is_signed else 'Uint'}N({self.part.size}, {number})"
        match self.part.form, self.kind:
            case _, "address" | "bytes":
                return f'"0x" + ({number}).toString(16).padStart({self._digits}, "0")'
            case "bool", kind:
                return f"({number}) !== 0n{' ? 1n : 0n' if kind == 'number' else ''}"
            case "left", _:
                return f"({number}){_shift('<<', _BITS_OF_WORD - self.part.size, 'n')}"
        return number

    @property
    def in_python(self) -> str:
        """Return the part of `word`, bytes."""
        number = f"int.from_bytes(word){_shift('>>', self.part.offset)}"
        if self._above:
            number = f"{_grouped(number)} & (2**{self.part.size} - 1)"
        match self.part.form, self.kind:
            case _, "address" | "bytes":
                return f'f"0x{{{number}:0{self._digits}x}}"'
            case "bool", kind:
                return f"int({_grouped(number)} != 0)" if kind == "number" else f"{_grouped(number)} != 0"
            case "left", _:
                return f"{_grouped(number)}{_shift('<<', _BITS_OF_WORD - self.part.size)}"
        sign = self.part.size - 1
        return f"({_grouped(number)} ^ 2**{sign}) - 2**{sign}" if self._is_signed else number

    @property
    def in_shell(self) -> str | None:
        """Return commands that print the part of `$WORD` with `cast`. None: there are none."""
        size = self.part.size
        number = f'PART=$(cast to-uint256 "$(cast shr "$(cast shl "$WORD" {self._above})" {_BITS_OF_WORD - size})")'
        match self.part.form, self.kind:
            case _, "address" | "bytes":
                return f'{number}\necho "0x${{PART: -{self._digits}}}"'
            case "bool", kind:
                true, false = (1, 0) if kind == "number" else ("true", "false")
                return f"{number}\ncase $PART in *[1-9a-f]*) echo {true} ;; *) echo {false} ;; esac"
            case "left", _:
                return f'{number}\ncast to-dec "$(cast shl "$PART" {_BITS_OF_WORD - size})"'
        if not self._is_signed:
            return f'{number}\ncast to-dec "$PART"'
        if size % 4:
            # Its first digit has bits of the sign and others.
            return None
        digits = f"${{PART: -{self._digits}}}"
        fill = "f" * (64 - self._digits)
        negative = f'case {digits} in [89a-f]*) PART="0x{fill}{digits}" ;; esac'
        return f"{number}\n{negative}\ncast decode-abi 'f()(int256)' \"$PART\""

    @property
    def _is_signed(self) -> bool:
        return self.part.form == "signed"

    @property
    def _above(self) -> int:
        """Return the number of bits above the part."""
        return _BITS_OF_WORD - self.part.offset - self.part.size

    @property
    def _digits(self) -> int:
        return -(-(_BITS_OF_ADDRESS if self.kind == "address" else self.part.size) // 4)


def _shift(direction: str, bits: int, suffix: str = "") -> str:
    return f" {direction} {bits}{suffix}" if bits else ""


def _grouped(code: str) -> str:
    return f"({code})" if " >> " in code or " & " in code else code
