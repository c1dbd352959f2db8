// Computes the storage slots that a request names, as queries/storage_layout.py does.

import { Refusal, bytesOf, hexOf, keccak } from "./proofs.js";

const LAYOUTS = ["solidity", "vyper", "vyper-0.2.12"];
const SLOT = /^(?:0x)?[0-9a-fA-F]{1,64}$/;
const NUMBER = /^(?:0x[0-9a-fA-F]{1,64}|[0-9]{1,78})$/, SIGNED = /^(?:0x[0-9a-fA-F]{1,64}|-?[0-9]{1,78})$/;
const KEY_TYPE = /^(?:string|bytes(?:[1-9]|[12][0-9]|3[0-2])?)$/;
const DATA = /^0x(?:[0-9a-fA-F]{2})*$/;
// Characters that no text of a key has: half a surrogate pair is in no UTF-8.
const NO_TEXT = /[\0\p{Surrogate}]/u;
const MOST_KEYS = 16, MOST_BYTES = 1024;
const WORDS = 1n << 256n;

/** The slot as 0x and 64 digits. @param {any} asked a slot in hexadecimal, or a name */
export function slotOf(asked) {
  if (typeof asked === "string") return `0x${wordOf(variable(asked))}`;
  require(/^(?:call,)?(?:decimals,)?keys,(?:layout,)?(?:part,)?slot(?:,symbol)?$/.test(fieldsOf(asked)));
  const { keys, layout = "solidity", slot, ...stated } = asked;
  require(Array.isArray(keys) && (keys.length > 0 || Object.keys(stated).length > 0));
  require(keys.length <= MOST_KEYS && LAYOUTS.includes(layout));
  return `0x${wordOf(keys.reduce((before, key) => BigInt.asUintN(256, after(before, key, layout)), variable(slot)))}`;
}

/** The slot to which a key leads, before it wraps. @param {bigint} slot @param {any} key @param {string} layout */
function after(slot, key, layout) {
  const word = wordOf(slot), isSolidity = layout === "solidity", isOld = layout === "vyper-0.2.12";
  if (typeof key === "string") {
    const value = wordOf(BigInt.asUintN(256, number(key, SIGNED)));
    return hash(isSolidity ? value + word : word + value);
  }
  const fields = fieldsOf(key);
  if (fields === "key,type") {
    const content = contentOf(key), isLong = isHashed(key.type), padded = isLong ? content : content.padEnd(64, "0");
    if (isSolidity) return hash(padded + word);
    return hash(word + (isLong ? keccak(bytesOf(content)) : padded));
  }
  if (fields === "member") return (isOld ? hash(word) : slot) + number(key.member);
  require(/^index(?:,length)?(?:,size)?$/.test(fields));
  const index = number(key.index), { length = null, size: bytes = "32" } = key, size = number(bytes);
  const isDynamic = length === null;
  require(size > 0n && (isDynamic || index < number(length)));
  const first = isOld || (isSolidity && isDynamic) ? hash(word) : slot;
  const elements = isSolidity && size <= 32n ? index / (32n / size) : index * ((size + 31n) / 32n);
  // Vyper keeps the length before the elements.
  return first + (isOld ? index : elements) + (isDynamic && !isSolidity ? 1n : 0n);
}

/** A mapping's key in hexadecimal digits. @param {any} key */
function contentOf({ key, type }) {
  require(typeof key === "string" && typeof type === "string" && KEY_TYPE.test(type));
  require(type === "string" ? !NO_TEXT.test(key) : DATA.test(key));
  const content = type === "string" ? hexOf(new TextEncoder().encode(key)) : key.slice(2);
  const size = content.length / 2;
  require(isHashed(type) ? size <= MOST_BYTES : size === Number(type.slice("bytes".length)));
  return content;
}

/** A type of keys that may be longer than a word. @param {string} type */
const isHashed = (type) => type === "string" || type === "bytes";

/** @param {unknown} text */
function variable(text) {
  require(typeof text === "string" && SLOT.test(text));
  return BigInt(`0x${String(text).replace(/^0x/, "")}`);
}

/** @param {unknown} text @param {RegExp} form */
function number(text, form = NUMBER) {
  require(typeof text === "string" && form.test(text));
  const value = BigInt(/** @type {string} */ (text));
  require(value >= -WORDS / 2n && value < WORDS);
  return value;
}

/** Names of an object's fields, in order. @param {any} value */
const fieldsOf = (value) => (typeof value === "object" && value !== null ? Object.keys(value).sort().join() : "");

/** @param {bigint} value @returns {string} 64 digits */
const wordOf = (value) => value.toString(16).padStart(64, "0");

/** @param {string} digits */
const hash = (digits) => BigInt(`0x${keccak(bytesOf(digits))}`);

/** @param {boolean} isRight */
function require(isRight) {
  if (!isRight) throw new Refusal("The request has a malformed storage slot or slot name.");
}
