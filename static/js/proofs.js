// Verifies headers, accounts, storage slots and transactions against hashes (Yellow Paper 4.3 and appendix D; EIP-1186,
// EIP-2718), as strictly as the service itself does in chains/tries/header.py, chains/tries/trie.py and chains/nodes/receipts.py. A proof
// that fails throws a `Refusal`, whose message is one sentence.

import { keccak_256 } from "../vendor/noble/sha3.js";

/** Bytes, or a list with the length of its RLP. @typedef {Uint8Array | (any[] & {size: number})} Item */

const HASH_BYTES = 32;
const BRANCH = 17, SHORT = 2; // a leaf or an extension is short
const ACCOUNT_FIELDS = 4;
const RECEIPT_FIELDS = 4;
const BLOOM_BYTES = 256;
const MOST_TOPICS = 4;
// The first type whose receipts may have strings behind the logs, such as a deposit's nonce and version.
const FIRST_OF_OTHER_CHAINS = 0x64;
// Depth of nested lists in RLP. Each is longer than the one in it, and an embedded node has less than 32 bytes.
const MOST_DEPTH = 32;
// A longer length would exceed the size of any file.
const MOST_LENGTH_BYTES = 4;

export class Refusal extends Error {}

// --- Bytes ------------------------------------------------------------------------------------------------------------

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** In hexadecimal digits, without 0x. @param {Uint8Array} bytes */
export function hexOf(bytes) {
  let text = "";
  for (const byte of bytes) text += HEX[byte];
  return text;
}

/** @param {string} digits an even number of hexadecimal digits */
export function bytesOf(digits) {
  // The last four bits of the codes of 0 to 9 are the digit. For A to F and a to f they count from 1.
  const digit = (at) => (digits.charCodeAt(at) & 0xf) + (digits.charCodeAt(at) > 0x39 ? 9 : 0);
  const bytes = new Uint8Array(digits.length / 2);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = 16 * digit(2 * at) + digit(2 * at + 1);
  return bytes;
}

/** In hexadecimal digits. @param {Uint8Array} bytes */
export const keccak = (bytes) => hexOf(keccak_256(bytes));

/** A number's bytes as a word. @param {Uint8Array} bytes @returns {string} 64 digits */
const wordOf = (bytes) => hexOf(bytes).padStart(64, "0");

/** @param {Uint8Array} bytes */
const numberOf = (bytes) => BigInt(`0x0${hexOf(bytes)}`);

const isNumber = (item, most) => item instanceof Uint8Array && item.length <= most && item[0] !== 0;
const isBytes = (item, length) => item instanceof Uint8Array && item.length === length;

// --- RLP --------------------------------------------------------------------------------------------------------------

/**
 * Decodes one item from its canonical RLP.
 * @param {Uint8Array} bytes @param {string} sentence the refusal's message @returns {Item}
 */
function decode(bytes, sentence) {
  const malformed = () => new Refusal(sentence);

  /** @returns {[Item, number]} the item at a place, and where the next one begins */
  function read(start, end, depth) {
    if (start >= end || depth > MOST_DEPTH) throw malformed();
    const prefix = bytes[start];
    if (prefix < 0x80) return [bytes.subarray(start, start + 1), start + 1];
    const isList = prefix >= 0xc0;
    let at = start + 1;
    let size = prefix - (isList ? 0xc0 : 0x80);
    if (size > 55) {
      const digits = bytes.subarray(at, (at += size - 55));
      if (digits.length > MOST_LENGTH_BYTES || at > end || digits[0] === 0) throw malformed();
      size = Number(numberOf(digits));
      if (size <= 55) throw malformed();
    }
    const stop = at + size;
    if (stop > end) throw malformed();
    if (!isList) {
      if (size === 1 && bytes[at] < 0x80) throw malformed();
      return [bytes.subarray(at, stop), stop];
    }
    const items = Object.assign([], { size: stop - start });
    while (at < stop) {
      let item;
      [item, at] = read(at, stop, depth + 1);
      items.push(item);
    }
    return [items, stop];
  }

  const [item, end] = read(0, bytes.length, 0);
  if (end !== bytes.length) throw malformed();
  return item;
}

// --- Headers ----------------------------------------------------------------------------------------------------------

const exact = (length) => (item) => isBytes(item, length);
const number = (most) => (item) => isNumber(item, most);

/** A header's properties in order, each with its check. @type {[string, (item: Item) => boolean][]} */
const HEADER = [
  ["PARENT_HASH", exact(32)],
  ["UNCLES_HASH", exact(32)],
  ["COINBASE", exact(20)],
  ["STATE_ROOT", exact(32)],
  ["TRANSACTIONS_ROOT", exact(32)],
  ["RECEIPTS_ROOT", exact(32)],
  ["LOGS_BLOOM", exact(256)],
  ["DIFFICULTY", number(32)],
  ["BLOCK_NUMBER", number(8)],
  ["GAS_LIMIT", number(8)],
  ["GAS_USED", number(8)],
  ["TIMESTAMP", number(8)],
  ["EXTRA_DATA", (item) => item instanceof Uint8Array],
  ["MIX_HASH", exact(32)],
  ["NONCE", exact(8)],
  ["BASE_FEE_PER_GAS", number(16)], // London. No fee takes more, and no hash takes less
  ["WITHDRAWALS_ROOT", exact(32)], // Shanghai, EIP-4895
  ["BLOB_GAS_USED", number(8)], // Cancun, EIP-4844 and EIP-4788
  ["EXCESS_BLOB_GAS", number(8)],
  ["PARENT_BEACON_BLOCK_ROOT", exact(32)],
  ["REQUESTS_HASH", exact(32)], // Prague, EIP-7685
  ["BLOCK_ACCESS_LIST_HASH", exact(32)], // Amsterdam, EIP-7928 and EIP-7843
  ["SLOT_NUMBER", number(8)],
];
export const HEADER_PROPERTIES = HEADER.map(([name]) => name);
export const ACCOUNT_PROPERTIES = ["NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH"];
export const RECEIPT_PROPERTIES = ["STATUS", "TYPE", "CUMULATIVE_GAS_USED", "LOG_COUNT"];
// All chains of interest have the first 13 fields in common; Ethereum's header had 15 before London.
const SHARED = 13, FEWEST = 15;
const HASHED = new Set(["LOGS_BLOOM", "EXTRA_DATA"]);

/**
 * Decodes a header. `words` has 64 digits for each property that means the same as on Ethereum.
 * @param {Uint8Array} bytes
 */
export function header(bytes) {
  const fields = decode(bytes, "The header is not canonical RLP.");
  const fits = (count) => HEADER.slice(0, count).every(([, isRight], place) => isRight(fields[place]));
  if (!Array.isArray(fields) || fields.length < SHARED || !fits(SHARED) || !fields[3].some(Boolean)) {
    throw new Refusal("The header doesn't begin with the fields of a header.");
  }
  const isEthereums = fields.length >= FEWEST && fields.length <= HEADER.length && fits(fields.length);
  const words = new Map();
  for (const [place, content] of fields.slice(0, isEthereums ? fields.length : SHARED).entries()) {
    const [name] = HEADER[place];
    words.set(name, HASHED.has(name) ? keccak(content) : wordOf(content));
  }
  return {
    hash: keccak(bytes),
    parentHash: hexOf(fields[0]),
    stateRoot: hexOf(fields[3]),
    transactionsRoot: hexOf(fields[4]),
    receiptsRoot: hexOf(fields[5]),
    number: numberOf(fields[8]),
    timestamp: numberOf(fields[11]),
    words,
  };
}

// --- Tries ------------------------------------------------------------------------------------------------------------

/** A node of a proof. Many proofs share one, which is hashed and read once. */
export class Node {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.hash = keccak(bytes);
    /** @type {any[] | undefined} */
    this.read = undefined;
  }

  get items() {
    this.read ??= requireNode(decode(this.bytes, "The proof has a node that is not canonical RLP."));
    return this.read;
  }
}

const EMPTY_NODE = new Node(Uint8Array.of(0x80));
const NO_CODE = "0".repeat(64);

/**
 * The account at an address. One that doesn't exist has zeros, and the root of the empty trie.
 * @param {string} stateRoot @param {Uint8Array} address @param {Node[]} nodes from the root on
 */
export function account(stateRoot, address, nodes) {
  const found = lookUp(stateRoot, keccak(address), nodes, readAccount);
  if (found) return found;
  const words = ["0".repeat(64), "0".repeat(64), EMPTY_NODE.hash, NO_CODE];
  return { exists: false, storageRoot: EMPTY_NODE.hash, words: byProperty(words) };
}

const byProperty = (words) => new Map(words.map((word, place) => [ACCOUNT_PROPERTIES[place], word]));

/** @param {Uint8Array} value */
function readAccount(value) {
  const fields = decode(value, "The proof's account is malformed: not canonical RLP.");
  const isRight = Array.isArray(fields) && fields.length === ACCOUNT_FIELDS &&
    isNumber(fields[0], 8) && isNumber(fields[1], 32) && isBytes(fields[2], 32) && isBytes(fields[3], 32);
  if (!isRight) throw new Refusal("The proof's account is malformed, or has another form than Ethereum's.");
  return { exists: true, storageRoot: hexOf(fields[2]), words: byProperty(fields.map(wordOf)) };
}

/**
 * The word of a storage slot, zeros where it is empty.
 * @param {string} storageRoot @param {Uint8Array} slot 32 bytes @param {Node[]} nodes from the root on
 */
export function slot(storageRoot, slot, nodes) {
  return lookUp(storageRoot, keccak(slot), nodes, readWord) ?? "0".repeat(64);
}

/** @param {Uint8Array} value */
function readWord(value) {
  const content = decode(value, "The proof's slot is malformed: not canonical RLP.");
  if (!isNumber(content, 32)) throw new Refusal("The proof's slot is malformed: not a canonical number of 32 bytes.");
  if (!content.length) throw new Refusal("The proof's slot has a zero, which no storage trie stores.");
  return wordOf(content);
}

/**
 * The hash of a transaction, in hexadecimal digits.
 * @param {string} transactionsRoot @param {number} index in the block @param {Node[]} nodes from the root on
 */
export const transactionHash = (transactionsRoot, index, nodes) => keccak(ofTransaction(transactionsRoot, index, nodes));

/** A log of a receipt, in hexadecimal digits. @typedef {{emitter: string, topics: string[], data: string}} Log */

/**
 * The receipt of a transaction. `words` has no STATUS before Byzantium.
 * @param {string} receiptsRoot @param {number} index in the block @param {Node[]} nodes from the root on
 * @returns {{words: Map<string, string>, logs: Log[]}}
 */
export function receipt(receiptsRoot, index, nodes) {
  const value = ofTransaction(receiptsRoot, index, nodes);
  const isTyped = value[0] > 0 && value[0] < 0x80, type = isTyped ? value[0] : 0;
  const fields = decode(isTyped ? value.subarray(1) : value, "The proof's receipt is not canonical RLP.");
  const isRight = Array.isArray(fields) && (type >= FIRST_OF_OTHER_CHAINS || fields.length === RECEIPT_FIELDS) &&
    fields[0] instanceof Uint8Array && isNumber(fields[1], 8) && isBytes(fields[2], BLOOM_BYTES) &&
    Array.isArray(fields[3]) && fields.slice(RECEIPT_FIELDS).every((field) => field instanceof Uint8Array);
  if (!isRight) throw new Refusal("The proof's receipt is malformed.");
  const [status, gas, , logs] = fields;
  const words = new Map();
  // Before Byzantium a receipt has a state root instead of the status.
  if (isTyped || status.length !== HASH_BYTES) {
    if (status.length > 1 || (status.length && status[0] !== 1)) {
      throw new Refusal("The proof's receipt has a status that is neither 0 nor 1.");
    }
    words.set("STATUS", wordOf(status));
  }
  words.set("TYPE", wordOf(Uint8Array.of(type))).set("CUMULATIVE_GAS_USED", wordOf(gas));
  words.set("LOG_COUNT", logs.length.toString(16).padStart(64, "0"));
  return { words, logs: logs.map(readLog) };
}

/** @param {Item} item @param {number} index @returns {Log} */
function readLog(item, index) {
  const isRight = Array.isArray(item) && item.length === 3 && isBytes(item[0], 20) && Array.isArray(item[1]) &&
    item[1].length <= MOST_TOPICS && item[1].every((topic) => isBytes(topic, 32)) && item[2] instanceof Uint8Array;
  if (!isRight) throw new Refusal(`The proof's receipt has a log ${index} that is malformed.`);
  return { emitter: hexOf(item[0]), topics: item[1].map(hexOf), data: hexOf(item[2]) };
}

/** The hash that a facts registry stores of a log. @param {Log} log */
export function logHash({ emitter, topics, data }) {
  return keccak(bytesOf(emitter.padStart(64, "0") + topics.join("") + keccak(bytesOf(data))));
}

/** The value of a transaction in its block's trie of transactions or receipts, which is by the RLP of the index. */
function ofTransaction(root, index, nodes) {
  const digits = index.toString(16).replace(/^(?=(..)*.$)/, "0");
  const key = index === 0 ? "80" : index < 0x80 ? digits : (0x80 + digits.length / 2).toString(16) + digits;
  const value = lookUp(root, key, nodes, (bytes) => bytes);
  if (value === null) throw new Refusal(`The proof shows that the block has no transaction ${index}.`);
  return value;
}

/**
 * The value at a key, or null where the nodes prove that there is none. They must be exactly the path to it.
 * @template T @param {string} root @param {string} key the digits of the path @param {Node[]} nodes
 * @param {(value: Uint8Array) => T} read
 */
function lookUp(root, key, nodes, read) {
  if (root === EMPTY_NODE.hash) {
    // For an empty trie, some clients of the network send its empty node, and others send no node.
    if (nodes.length > 1 || (nodes.length && nodes[0].hash !== EMPTY_NODE.hash)) {
      throw new Refusal("The proof has nodes, but the trie is empty.");
    }
    return null;
  }
  let used = 0;
  const referenced = (hash, isRoot) => {
    if (used === nodes.length) throw new Refusal("The proof ends before its key does.");
    const node = nodes[used++];
    if (node.hash !== hash) {
      throw new Refusal("The proof has a node whose hash differs from the hash in its parent or the root.");
    }
    if (node.bytes.length < HASH_BYTES && !isRoot) {
      throw new Refusal("The proof refers to a short node by hash, but its parent should embed it.");
    }
    return node.items;
  };
  const value = walk(referenced(root, true), key, (child) => {
    if (child instanceof Uint8Array) return referenced(hexOf(child), false);
    // A node is embedded in its parent if, and only if, it is shorter than a hash.
    if (child.size >= HASH_BYTES) throw new Refusal("The proof has an embedded node that is not shorter than a hash.");
    return requireNode(child);
  }, read);
  if (used < nodes.length) throw new Refusal("The proof has nodes after its end.");
  return value;
}

/** Follows a path, the digits of a key, from a node to the value, or to the node that proves its absence. */
function walk(node, path, below, read) {
  for (;;) {
    let child;
    if (node.length === BRANCH) {
      if (!(node[BRANCH - 1] instanceof Uint8Array) || node[BRANCH - 1].length) {
        throw new Refusal("The proof has a branch with a value, but all keys are equally long.");
      }
      if (!path) throw new Refusal("The proof is deeper than its key is long.");
      [child, path] = [node[parseInt(path[0], 16)], path.slice(1)];
      if (child instanceof Uint8Array && !child.length) return null;
    } else {
      const [prefix, isLeaf] = readPath(node[0]);
      if (isLeaf) {
        if (prefix.length !== path.length) throw new Refusal("The proof has a leaf whose key has the wrong length.");
        if (!(node[1] instanceof Uint8Array) || !node[1].length) {
          throw new Refusal("The proof has a leaf without a value.");
        }
        // A leaf of another key proves the absence. Its value is read too, as the service does.
        const value = read(node[1]);
        return prefix === path ? value : null;
      }
      if (!prefix || prefix.length >= path.length) {
        throw new Refusal("The proof has an extension that is empty or longer than its key.");
      }
      if (!path.startsWith(prefix)) return null;
      [child, path] = [node[1], path.slice(prefix.length)];
    }
    node = below(child);
  }
}

/** @param {Item} item */
function requireNode(item) {
  if (Array.isArray(item) && (item.length === BRANCH || item.length === SHORT)) return item;
  throw new Refusal("The proof has a node that is neither branch, extension nor leaf.");
}

/**
 * The digits of a hex-prefix encoded path (Yellow Paper, appendix C), and whether it ends in a leaf.
 * @param {Item} item @returns {[string, boolean]}
 */
function readPath(item) {
  const digits = item instanceof Uint8Array ? hexOf(item) : "";
  if (/^[02]0/.test(digits)) return [digits.slice(2), digits[0] === "2"];
  if (/^[13]/.test(digits)) return [digits.slice(1), digits[0] === "3"];
  throw new Refusal("The proof has a path that is not hex-prefix encoded.");
}
