// Verifies the proof bundle of a batch or of one of its queries (api/bundles/), from the blocks' hashes down to each
// fact, as `bqs verify` does, and compares it with the request. Only a node of the chain can tell that the hashes are
// those of the blocks.

import {
  Node, Refusal, account, bytesOf, header, hexOf, keccak, logHash, receipt, slot, transactionHash,
} from "./proofs.js";
import { slotOf } from "./slots.js";

/**
 * The facts that a bundle proves for a query, given that `blockHash` is the hash of that block.
 * @typedef {{
 *   number: number, chain: string, blockNumber: string, blockHash: string, selector: string, name: string | null,
 *   account: string | null, facts: Map<string, string>, slots: Map<string, string>, timestamp: string | null,
 *   registry: string | null, nodes: Node[], nodesOfSlots: Map<string, Node[]>,
 *   shown: { exists: boolean, words: Map<string, string> } | null,
 *   transaction: string | null, transactionHash: string | null, logs: Map<string, string>,
 * }} Proven `transaction` is its index in the block, and `logs` has hashes by the index within the receipt.
 */

const FORMAT = "facts-3";
const CHAIN_ID = /^[1-9][0-9]{0,19}$/;
const BATCH_ID = /^[0-9A-HJKMNP-TV-Z]{26}$/;
const SECONDS = /^[0-9]{1,20}$/;
const DATA = /^0x(?:[0-9a-fA-F]{2})*$/;
const SLOT = /^0x[0-9a-f]{64}$/;
const INDEX = /^(?:0|[1-9][0-9]{0,9})$/;
// Begin the name of a log that is counted within the receipt, or within the block.
const LOG = "log ", OF_BLOCK = "log of the block ";
// Queries or nodes that are verified before the page is drawn again.
const AT_ONCE = 500;

/**
 * Reads the bundle of a batch, or of one of its queries. Checks nothing but its format.
 * @param {string} text @param {number | null} only the number of the query
 */
export function read(text, only = null) {
  let bundle;
  try {
    bundle = JSON.parse(text);
  } catch {
    throw new Refusal("The file is not JSON.");
  }
  if (!isObject(bundle) || bundle.format !== FORMAT) {
    throw new Refusal(`The file is not a proof bundle of the format ${FORMAT}.`);
  }
  // To JavaScript 1.0 is 1.
  if (/[0-9][.eE]/.test(text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"/g, '""'))) {
    throw new Refusal("The bundle has a position or a query number that is not a whole number.");
  }
  return { ...bundle, only };
}

/**
 * Verifies a bundle that was read. `hashes` are those that it needs, by `chain/block`.
 * @param {any} bundle
 * @param {(queries: number) => unknown} progress gets the number of verified queries, and may return a promise
 * @returns {Promise<{queries: Proven[], hashes: Map<string, string>, nodes: number}>}
 */
export async function verify(bundle, progress = () => {}) {
  const blocks = listOf(bundle, "blocks"), queries = listOf(bundle, "queries");
  if (!queries.length) throw new Refusal("The bundle has no queries.");
  requireForm(bundle.destinationChainId, CHAIN_ID, "The bundle's destinationChainId is not a chain id.");
  requireForm(bundle.batch, BATCH_ID, "The bundle's batch is not the identifier of a batch.");
  requireDistinct(blocks);
  const used = new Set();
  for (const [at, query] of queries.entries()) {
    const number = at + (bundle.only ?? 1);
    if (!isObject(query) || query.number !== number) {
      throw new Refusal(`Where query ${number} should be is another: queries are numbered from 1, without gaps or repetitions.`);
    }
    const sentence = `Query ${number}: The query's block is not a position in the bundle's blocks.`;
    used.add(placesOf([query.block], blocks.length, sentence)[0]);
  }
  if (used.size < blocks.length) throw new Refusal("No query of the bundle uses one of its blocks.");
  const headers = blocks.map(headerOf);
  const hashes = new Map();
  /** @type {Node[]} */
  const nodes = [];
  for (const [place, node] of listOf(bundle, "nodes").entries()) {
    nodes.push(new Node(dataOf(node, `nodes.${place}`)));
    if (nodes.length % AT_ONCE === 0) await progress(0);
  }
  const proven = [];
  for (const query of queries) {
    try {
      proven.push(verifyQuery(query, blocks[query.block], headers[query.block], nodes, hashes));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      throw new Refusal(`Query ${query.number}: ${error.message}`);
    }
    if (proven.length % AT_ONCE === 0) await progress(proven.length);
  }
  return { queries: proven, hashes, nodes: nodes.length };
}

/** A block may not be there twice: otherwise two blocks of one number could be shown. @param {any[]} blocks */
function requireDistinct(blocks) {
  const named = new Set();
  for (const block of blocks) {
    const isOne = isObject(block) && typeof block.sourceChainId === "string" && typeof block.blockNumber === "string";
    if (!isOne) throw new Refusal("One of the bundle's blocks is not a block.");
    requireForm(block.sourceChainId, CHAIN_ID, "The bundle's sourceChainId is not a chain id.");
    if (block.factsRegistry != null) dataOf(block.factsRegistry, "factsRegistry", 20);
    const name = `${block.sourceChainId}/${block.blockNumber}`;
    if (named.has(name)) {
      throw new Refusal(`The bundle has block '${block.blockNumber}' of chain '${block.sourceChainId}' twice.`);
    }
    named.add(name);
  }
}

/** Its header, which has the hash and the number that the block names. @param {any} block */
function headerOf(block) {
  const bytes = dataOf(block.header, "header");
  if (keccak(bytes) !== hexOf(dataOf(block.blockHash, "blockHash", 32))) {
    throw new Refusal("The header's hash is not the block's hash.");
  }
  const head = header(bytes);
  if (block.blockNumber !== String(head.number)) {
    throw new Refusal(`The header is that of block ${head.number}, not of the block that the bundle names.`);
  }
  return head;
}

/**
 * @param {any} query @param {any} block @param {ReturnType<typeof header>} head
 * @param {Node[]} nodes @param {Map<string, string>} hashes those that are needed are put there
 * @returns {Proven}
 */
function verifyQuery(query, block, head, nodes, hashes) {
  const claimed = entriesOf(query, "facts"), slots = entriesOf(query, "slots");
  const claimedLogs = "logs" in query ? entriesOf(query, "logs") : [];
  if (!claimed.length && !slots.length && !claimedLogs.length) throw new Refusal("The bundle claims no facts.");
  const nodesAt = (places, sentence) => placesOf(places, nodes.length, sentence).map((place) => nodes[place]);
  let found = null;
  /** @type {Node[]} */
  let nodesOfAccount = [];
  if (query.account != null) {
    const sentence = "The accountProof is not a list of positions in the nodes.";
    nodesOfAccount = nodesAt(query.accountProof, sentence);
    found = account(head.stateRoot, dataOf(query.account, "account", 20), nodesOfAccount);
  } else if (slots.length) {
    throw new Refusal("The bundle claims slots without an account.");
  }
  const transaction = query.transaction == null ? null : verifyTransaction(query, head, nodesAt);
  const words = (found ?? transaction ?? head).words;
  const facts = new Map();
  for (const [name, word] of claimed) {
    if (!words.has(name)) throw new Refusal(`The bundle claims an unknown fact: '${name.slice(0, 40)}'.`);
    if (word !== `0x${words.get(name)}`) throw new Refusal(`The proof shows another ${name} than the bundle claims.`);
    facts.set(name, word);
  }
  const values = new Map(), nodesOfSlots = new Map();
  for (const [name, entry] of slots) {
    requireForm(name, SLOT, "The bundle's slot is not 32 bytes in hex.");
    const sentence = "The proof of a slot is not a list of positions in the nodes.";
    const path = nodesAt(isObject(entry) ? entry.proof : null, sentence);
    const word = slot(/** @type {any} */ (found).storageRoot, bytesOf(name.slice(2)), path);
    if (entry.word !== `0x${word}`) {
      throw new Refusal(`The proof shows another word in slot ${name} than the bundle claims.`);
    }
    values.set(name, entry.word);
    nodesOfSlots.set(name, path);
  }
  const logs = new Map(claimedLogs.map(([index, entry]) => [index, verifyLog(index, entry, transaction?.logs ?? [])]));
  const needs = (number, hash) => {
    const about = `${block.sourceChainId}/${number}`;
    if ((hashes.get(about) ?? hash) !== hash) {
      throw new Refusal(`The bundle has two headers of block ${number} of chain ${block.sourceChainId}.`);
    }
    hashes.set(about, hash);
  };
  needs(head.number, `0x${head.hash}`);
  requireNotAfter(query.timestamp, head);
  return {
    number: query.number,
    chain: block.sourceChainId,
    blockNumber: block.blockNumber,
    blockHash: `0x${head.hash}`,
    selector: query.selector,
    name: query.name ?? null,
    account: query.account ?? null,
    facts,
    slots: values,
    timestamp: query.timestamp ?? null,
    registry: block.factsRegistry ?? null,
    nodes: nodesOfAccount,
    nodesOfSlots,
    shown: found,
    transaction: transaction?.index ?? null,
    transactionHash: transaction?.words.has("HASH") ? `0x${transaction.words.get("HASH")}` : null,
    logs,
  };
}

/**
 * The words of a query's transaction that the bundle has proofs for, and the logs of its receipt.
 * @param {any} query @param {ReturnType<typeof header>} head @param {(places: unknown, sentence: string) => Node[]} nodesAt
 */
function verifyTransaction({ account, receiptProof, transaction, transactionProof }, head, nodesAt) {
  if (account != null) throw new Refusal("The bundle names an account and a transaction for one query.");
  const index = isObject(transaction) ? transaction.index : null;
  requireForm(index, INDEX, "The bundle's transaction.index is not an index.");
  const words = new Map();
  let logs = [];
  if (receiptProof != null) {
    const nodes = nodesAt(receiptProof, "The receiptProof is not a list of positions in the nodes.");
    const shown = receipt(head.receiptsRoot, Number(index), nodes);
    logs = shown.logs;
    for (const [name, word] of shown.words) words.set(name, word);
  }
  if (transactionProof != null) {
    const nodes = nodesAt(transactionProof, "The transactionProof is not a list of positions in the nodes.");
    words.set("HASH", transactionHash(head.transactionsRoot, Number(index), nodes));
  }
  if (transaction.hash != null && hexOf(dataOf(transaction.hash, "transaction.hash", 32)) !== words.get("HASH")) {
    throw new Refusal("The proof doesn't show the transaction's hash that the bundle names.");
  }
  return { index, words, logs };
}

/** The hash of a claimed log. @param {string} index @param {any} entry @param {import("./proofs.js").Log[]} logs */
function verifyLog(index, entry, logs) {
  requireForm(index, INDEX, "The bundle's logs have an index that is not a number.");
  if (!isObject(entry)) throw new Refusal(`The bundle's logs.${index} is not an object.`);
  const digits = (value, name, length) => hexOf(dataOf(value, `logs.${index}.${name}`, length));
  const topics = listOf(entry, "topics").map((topic) => digits(topic, "topics", 32));
  const emitter = digits(entry.emitter, "emitter", 20), data = digits(entry.data, "data");
  const word = digits(entry.word, "word", 32);
  const log = logs[Number(index)];
  if (!log) throw new Refusal(`The proof shows no log ${index}.`);
  const isSame = emitter === log.emitter && topics.join() === log.topics.join() && data === log.data;
  if (!isSame || word !== logHash(log)) {
    throw new Refusal(`The proof shows another log ${index} than the bundle claims.`);
  }
  return `0x${word}`;
}

/** Refuses a block that is later than the query's time. @param {any} timestamp @param {ReturnType<typeof header>} head */
function requireNotAfter(timestamp, head) {
  if (timestamp == null) return;
  requireForm(timestamp, SECONDS, "The bundle's timestamp is not a number of seconds.");
  const time = BigInt(timestamp);
  if (head.timestamp > time) {
    throw new Refusal(`The block's time is ${head.timestamp} s, after the time ${time} that the bundle names.`);
  }
}

// --- The request ------------------------------------------------------------------------------------------------------

/**
 * Refuses a bundle of another batch. Refuses one whose accounts, headers, times and facts differ from the
 * request. The bundle of one query has nothing of other queries. Returns the queries in whose request something is not
 * in the proof: places of logs within the block, and the transaction that names the block.
 * @param {any} bundle @param {Proven[]} proven @param {string} batch @param {any} request
 */
export function requireAsked(bundle, proven, batch, request) {
  if (bundle.batch !== batch) throw new Refusal("The bundle belongs to another batch.");
  if (bundle.destinationChainId !== request.destinationChainId) {
    throw new Refusal("The bundle is for another destination chain than was asked for.");
  }
  const asked = askedBy(request), shown = new Map();
  for (const query of proven) {
    const at = `query ${query.number}`;
    const [kind, number] = String(query.selector).split(":");
    if (kind === "block" && number !== query.blockNumber) {
      throw new Refusal(`The block of ${at} is not the one asked for.`);
    }
    if ((kind === "timestamp" ? number : null) !== query.timestamp) {
      throw new Refusal(`The time of ${at} is not the one asked for.`);
    }
    // The bundle says by which name an account was asked for: that may be no other account's address.
    if (query.name !== null && /^0x[0-9a-f]{40}$/i.test(query.name)) {
      throw new Refusal(`The name of ${at} is an address.`);
    }
    const logs = [...query.logs.keys()].map((log) => `${LOG}${log}`), names = [...query.facts.keys(), ...query.slots.keys()];
    if (add(shown, query.chain, query.selector, nameIn(asked, query, shown), [...names, ...logs])) {
      throw new Refusal(`${at[0].toUpperCase()}${at.slice(1)} is about the same as one before.`);
    }
  }
  for (const [about, names] of asked) {
    const found = shown.get(about);
    if (bundle.only !== null && !found) continue;
    const missing = [...names].find((name) => !found?.has(name) && !(found && name.startsWith(OF_BLOCK)));
    if (missing) throw new Refusal(`The bundle lacks ${missing} of ${about}, which was asked for.`);
    const count = (all, begin) => [...all].filter((name) => name.startsWith(begin)).length;
    const logs = count(found, LOG), fewest = count(names, OF_BLOCK), most = count(names, LOG);
    if (logs > most || found.size - logs > names.size - most) {
      throw new Refusal(`The bundle has more of ${about} than was asked for.`);
    }
    // A log that the request counts within the block may be one that it counts within the receipt, too.
    if (logs < fewest) {
      throw new Refusal(`The bundle lacks a log of ${about}, which was asked for.`);
    }
  }
  for (const about of shown.keys()) {
    if (!asked.has(about)) throw new Refusal("The bundle has a query that was not asked for.");
  }
  const hashes = new Set(proven.map((query) => `${query.chain}/${query.blockNumber}/transaction:${query.transactionHash}`));
  return {
    ofLogsInBlock: proven.filter((query) => {
      const names = asked.get(aboutOf(query.chain, query.selector, nameIn(asked, query))) ?? [];
      return [...names].some((name) => name.startsWith(OF_BLOCK));
    }),
    byUnprovenHash: proven.filter(({ blockNumber, chain, selector }) =>
      String(selector).startsWith("transaction:") &&
      !hashes.has(`${chain}/${blockNumber}/${String(selector).toLowerCase()}`)),
  };
}

/** The name by which a request asks for a query, null for the header. A hash counts only if it is proven. */
function nameIn(asked, { account, chain, facts, name, selector, transaction, transactionHash }, shown = new Map()) {
  if (transaction === null) return name ?? account;
  const names = [`transaction ${transactionHash}`, `transaction ${transaction}`];
  const namesOf = (about) => asked.get(aboutOf(chain, selector, about));
  // A request may name a transaction both ways. The properties tell which of the two a query is.
  const isSuited = (about) => {
    const properties = [...namesOf(about)].filter((each) => !each.startsWith(LOG) && !each.startsWith(OF_BLOCK));
    return properties.length === facts.size && properties.every((each) => facts.has(each));
  };
  const suited = names.filter(namesOf).filter(isSuited);
  return suited.find((about) => !shown.has(aboutOf(chain, selector, about))) ?? suited[0] ?? names.find(namesOf) ?? names[1];
}

/**
 * Names of properties, slots and logs, by account, transaction or header.
 * @param {any} request @returns {Map<string, Set<string>>}
 */
function askedBy(request) {
  const found = new Map();
  for (const [chain, blocks] of Object.entries(request.data)) {
    for (const [selector, block] of Object.entries(blocks)) {
      for (const [name, { props, slots }] of Object.entries(block.accounts ?? {})) {
        add(found, chain, selector, name, [...(props ?? []), ...(slots ?? []).map(slotOf)]);
      }
      for (const [name, { props, logs, blockLogs }] of Object.entries(block.transactions ?? {})) {
        const named = (begin, indexes) => (indexes ?? []).map((index) => `${begin}${BigInt(index)}`);
        const names = [...(props ?? []), ...named(LOG, logs), ...named(OF_BLOCK, blockLogs)];
        add(found, chain, selector, `transaction ${name}`, names);
      }
      if (block.header?.length) add(found, chain, selector, null, block.header);
    }
  }
  return found;
}

/**
 * @param {Map<string, Set<string>>} found @param {string} chain @param {unknown} selector
 * @param {string | null} name null: of the header @param {string[]} names @returns {boolean} Whether it was there.
 */
function add(found, chain, selector, name, names) {
  const about = aboutOf(chain, selector, name);
  const isThere = found.has(about);
  if (!isThere) found.set(about, new Set());
  for (const each of names) found.get(about)?.add(each);
  return isThere;
}

/** @param {string} chain @param {unknown} selector @param {string | null} name null: of the header */
function aboutOf(chain, selector, name) {
  // An ENS name is stored as ENSIP-15 spells it. That is lower case for ASCII. Names beyond ASCII aren't distinguished.
  const who = name === null ? "the header" : /^[\x00-\x7f]*$/.test(name) ? name.toLowerCase() : "a name beyond ASCII";
  // A hash in the selector may have letters of any case.
  return `${who} at ${String(selector).toLowerCase()} of chain ${chain}`;
}

// --- JSON -------------------------------------------------------------------------------------------------------------

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @param {any} of @param {string} name @returns {any[]} */
function listOf(of, name) {
  if (Array.isArray(of[name])) return of[name];
  throw new Refusal(`The bundle's ${name} are not a list.`);
}

/** @param {any} of @param {string} name @returns {[string, any][]} */
function entriesOf(of, name) {
  if (isObject(of[name])) return Object.entries(of[name]);
  throw new Refusal(`The bundle's ${name} are not an object.`);
}

/** @param {unknown} places @param {number} count @param {string} sentence @returns {number[]} */
function placesOf(places, count, sentence) {
  const isPlace = (place) => Number.isInteger(place) && place >= 0 && place < count;
  if (Array.isArray(places) && places.every(isPlace)) return places;
  throw new Refusal(sentence);
}

/** @param {unknown} value @param {string} name @param {number} [length] */
function dataOf(value, name, length) {
  if (typeof value === "string" && DATA.test(value) && (length === undefined || value.length === 2 + 2 * length)) {
    return bytesOf(value.slice(2));
  }
  throw new Refusal(`The bundle's ${name} is not ${length === undefined ? "" : `${length} bytes in `}hex.`);
}

/** @param {unknown} value @param {RegExp} form @param {string} sentence */
function requireForm(value, form, sentence) {
  if (typeof value !== "string" || !form.test(value)) throw new Refusal(sentence);
}
