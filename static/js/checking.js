// Checks the proof of a batch or of one of its queries in the browser, and shows each step as it passes: the proof is
// for the request, it leads from hashes of blocks to each fact, these are the blocks' hashes, and the facts registry
// holds each fact. The visitor's wallet answers the last two. Without a wallet, the page says what remains to be trusted.

import { read, requireAsked, verify } from "./bundles.js";
import { ACCOUNT_PROPERTIES, HEADER_PROPERTIES, RECEIPT_PROPERTIES, Refusal, hexOf, keccak } from "./proofs.js";
import { Failure, Stopped, ask, chooseWallet, lead, offer, tell, until } from "./wallets.js";

/** @typedef {import("./bundles.js").Proven} Proven */
/** @typedef {import("./wallets.js").Wallet} Wallet */

// Calls to a wallet at once.
const CALLS = 10;
// Names in one sentence.
const MOST_NAMED = 5;

/** Thrown where a step can't be made, and something remains to be trusted instead. */
class Left extends Error {}

/** @param {HTMLElement} area of the page: its button, its steps, what it says and offers */
export async function check(area) {
  const find = (selector) => /** @type {HTMLElement} */ (area.querySelector(selector));
  const parts = { area, list: find(".wallets"), status: find("[role=status]"), actions: find(".actions") };
  const controller = new AbortController();
  const begin = /** @type {HTMLButtonElement} */ (find("button"));
  const end = (sentence, how) => {
    tell(parts.status, [sentence], how);
    offer(parts.actions, []);
    begin.disabled = false;
    lead(area, begin);
  };
  tell(parts.status, []);
  offer(parts.actions, [["Stop", () => controller.abort()]]);
  lead(area, parts.actions.querySelector("button"));
  const checking = new Checking(area, find("ol"), controller.signal);
  try {
    const needed = await checking.proof();
    const wallet = await chooseWallet(parts, "Check", controller);
    tell(parts.status, []);
    offer(parts.actions, [["Stop", () => controller.abort()]]);
    await checking.byWallet(wallet, needed);
    if (!checking.isWhole) return end("Everything checked is correct. Items marked “Not checked” need your wallet.");
    end("Confirmed: the registry holds exactly the proven values.", { done: true });
  } catch (error) {
    checking.fail(error);
    if (error instanceof Refusal) return end("The proof is wrong, as the last step says.", { failed: true });
    if (error instanceof Stopped) return end("Stopped. Nothing more was checked.");
    if (!(error instanceof Failure)) console.warn(error);
    end("The check failed.", { failed: true });
  }
}

class Checking {
  /** @param {HTMLElement} area @param {HTMLElement} list @param {AbortSignal} signal */
  constructor(area, list, signal) {
    this.area = area;
    this.list = list;
    this.signal = signal;
    this.isWhole = true;
    list.replaceChildren();
    /** The chains' names by their ids. */
    this.names = new Map();
    /** Addresses of facts readers by the source chains' ids. */
    this.readers = new Map();
    for (const { value, textContent, dataset } of area.querySelectorAll("data")) {
      if (dataset.reader) this.readers.set(value, dataset.reader);
      else this.names.set(value, textContent);
    }
  }

  // --- Steps ---------------------------------------------------------------------------------------------------------

  /** Begins a step, or changes the sentence of the running one. @param {string} sentence */
  begin(sentence) {
    if (this.last?.dataset.state === "busy") return this.#say(sentence);
    this.list.append(this.#item("busy"));
    this.#say(sentence);
  }

  /** Ends the step that runs. @param {"ok" | "left" | "fail"} state @param {string} sentence */
  end(state, sentence) {
    this.last?.replaceWith(this.#item(state));
    this.#say(sentence);
    if (state !== "ok") this.isWhole = false;
  }

  /** Ends the step that runs, if one does. @param {unknown} error */
  fail(error) {
    if (this.last?.dataset.state !== "busy") return;
    const isSaid = error instanceof Refusal || error instanceof Failure;
    const sentence = isSaid ? error.message : error instanceof Stopped ? "Stopped." : "This went wrong. Try again.";
    this.end(error instanceof Stopped ? "left" : "fail", sentence);
  }

  get last() {
    return /** @type {HTMLElement | null} */ (this.list.lastElementChild);
  }

  #item(state) {
    const template = /** @type {HTMLTemplateElement} */ (this.area.querySelector("template"));
    return /** @type {Element} */ (template.content.querySelector(`[data-state=${state}]`)).cloneNode(true);
  }

  #say(sentence) {
    /** @type {Element} */ (this.last?.lastElementChild).textContent = sentence;
  }

  // --- The proof itself ----------------------------------------------------------------------------------------------

  /** Verifies the bundle. Returns the questions for a wallet: the facts, and the hashes of blocks. */
  async proof() {
    const { batch = "", bundle: at = "", request: of = "", query } = this.area.dataset;
    this.begin("Loading the proof.");
    const text = await this.#load(at), request = JSON.parse(await this.#load(of));
    const bundle = read(text, query ? Number(query) : null);
    this.end("ok", `The proof is loaded: ${Math.ceil(text.length / 1000).toLocaleString("en")} kB.`);
    this.begin("Verifying the proof.");
    const count = bundle.queries?.length;
    const found = await verify(bundle, async (done) => {
      this.begin(`Verifying the proof: ${done.toLocaleString("en")} of ${counted(count, "query", "queries")}.`);
      await until(this.signal, new Promise((resolve) => setTimeout(resolve)));
    });
    const blocks = counted(bundle.blocks.length, "block");
    this.end("ok", `Each fact follows from the hashes of ${blocks}, by ${counted(found.nodes, "trie node")}.`);
    this.begin("Comparing with the request.");
    const { byUnprovenHash, ofLogsInBlock } = requireAsked(bundle, found.queries, batch, request);
    const what = query ? this.#about(found.queries[0]) : `${counted(count, "query", "queries")}, and no more`;
    this.end("ok", `Matches the request: ${what}.`);
    for (const [queries, what] of [
      [byUnprovenHash, `that the block of ${named(byUnprovenHash)} holds the transaction that names it`],
      [ofLogsInBlock, `which places in the block the logs of ${named(ofLogsInBlock)} have`],
    ]) {
      if (!queries.length) continue;
      this.begin("");
      this.end("left", `Not in the proof: ${what}.`);
    }
    return { ...found, destination: bundle.destinationChainId };
  }

  async #load(address) {
    let answer, text;
    try {
      answer = await until(this.signal, fetch(address, { headers: { Accept: "application/json" }, cache: "no-store" }));
      text = await until(this.signal, answer.text());
    } catch (error) {
      if (error instanceof Stopped) throw error;
      throw new Failure("The browser can't reach this service, or the connection broke. Check your connection, then try again.");
    }
    if (answer.ok) return text;
    let said = "";
    try {
      said = JSON.parse(text).error;
    } catch { /* A proxy has answered. */ }
    throw new Failure(said || `This service answered with error ${answer.status}. Try again in a moment.`);
  }

  // --- Steps of a wallet ---------------------------------------------------------------------------------------------

  /** @param {Wallet | null} wallet @param {{queries: Proven[], hashes: Map<string, string>, destination: string}} needed */
  async byWallet(wallet, { queries, hashes, destination }) {
    /** @type {Map<string, [string, string][]>} */
    const ofChain = new Map();
    for (const [about, hash] of hashes) {
      const [chain, number] = about.split("/");
      ofChain.set(chain, [...(ofChain.get(chain) ?? []), [number, hash]]);
    }
    for (const [chain, blocks] of ofChain) {
      await this.#step(() => this.#hashes(wallet, chain, blocks), () =>
        `It remains to be trusted that ${this.#name(chain)} has ${these(blocks.length)}: ${
          few(blocks.map(([number, hash]) => `${number} with the hash ${hash}`))}.`);
    }
    // The registry alone shows that a block was the latest at a time.
    const timed = queries.filter(({ timestamp }) => timestamp !== null);
    const times = timed.length ? `, and that the block of ${named(timed)} was the latest at its time` : "";
    await this.#step(() => this.#contracts(wallet, destination, "registry", queries.flatMap(callsOf)), () =>
      `You still have to trust that the facts registry on ${this.#name(destination)} holds this${times}.`);
    const byProof = queries.flatMap((query) => callsByProof(query, this.readers.get(query.chain)));
    if (!byProof.length) return;
    await this.#step(() => this.#contracts(wallet, destination, "reader", byProof), () =>
      `You still have to trust that the facts reader on ${this.#name(destination)} takes these proofs.`);
  }

  /** Makes a step by a wallet, or says what to trust instead. @param {() => Promise<string>} make @param {() => string} rest */
  async #step(make, rest) {
    this.begin("");
    try {
      this.end("ok", await make());
    } catch (error) {
      if (!(error instanceof Left || error instanceof Failure)) throw error;
      this.end("left", `${error.message} ${rest()}`);
    }
  }

  /** @param {Wallet | null} wallet @param {string} chain @param {[string, string][]} blocks */
  async #hashes(wallet, chain, blocks) {
    const by = await this.#on(wallet, chain);
    await this.#each(blocks, "blocks", async ([number, hash]) => {
      const block = await this.#ask(by, "eth_getBlockByNumber", [`0x${BigInt(number).toString(16)}`, false]);
      if (!block) throw new Refusal(`${by.name} knows no block ${number} of ${this.#name(chain)}.`);
      if (String(block.hash).toLowerCase() !== hash) {
        const other = `another block ${number} of ${this.#name(chain)}, with the hash ${block.hash}`;
        throw new Refusal(`${by.name} knows ${other}.`);
      }
    });
    return `${by.name} knows ${these(blocks.length)} of ${this.#name(chain)}.`;
  }

  /** @param {Wallet | null} wallet @param {string} chain @param {"registry" | "reader"} kind @param {Call[]} calls */
  async #contracts(wallet, chain, kind, calls) {
    const by = await this.#on(wallet, chain);
    await this.#each(calls, "facts", async ({ what, to, data, word }) => {
      if (to === null) throw new Left(`The proof names no facts registry for ${what}.`);
      let answer;
      try {
        answer = await this.#ask(by, "eth_call", [{ to, data }, "latest"]);
      } catch (error) {
        if (!(error instanceof Failure && /revert/i.test(error.message))) throw error;
        throw new Refusal(`The facts ${kind} ${to} doesn't hold ${what}.`);
      }
      if (String(answer).toLowerCase() !== word) {
        throw new Refusal(`The facts ${kind} ${to} has a different word than ${what}: ${answer}.`);
      }
    });
    const contracts = few([...new Set(calls.map(({ to }) => to))]), on = `on ${this.#name(chain)}`;
    if (kind === "registry") return `${by.name} reads ${counted(calls.length, "fact")} ${on} from ${contracts}, as proven.`;
    return `The facts reader ${contracts} ${on} takes ${counted(calls.length, "proof")} in its own call, with the same values.`;
  }

  /** The wallet, on this chain. Throws `Left`, `Failure`. @param {Wallet | null} wallet @param {string} chain */
  async #on(wallet, chain) {
    if (!wallet) throw new Left("There is no wallet in this browser.");
    const isThere = async () => BigInt(await this.#ask(wallet, "eth_chainId")) === BigInt(chain);
    if (await isThere()) return wallet;
    this.begin(`Waiting for ${wallet.name} to switch to ${this.#name(chain)}.`);
    const chainId = `0x${BigInt(chain).toString(16)}`;
    const noChain = `${wallet.name} doesn't have ${this.#name(chain)}.`;
    await this.#ask(wallet, "wallet_switchEthereumChain", [{ chainId }], noChain);
    if (!(await isThere())) throw new Left(`${wallet.name} is on another chain than ${this.#name(chain)}.`);
    return wallet;
  }

  #ask(wallet, method, params = [], noChain = undefined) {
    const declined = `You declined in ${wallet.name}.`;
    const words = { instead: "check it with bqs verify", declined, noChain };
    return until(this.signal, ask(wallet, method, params, words));
  }

  /** @template T @param {T[]} all @param {string} what @param {(one: T) => Promise<void>} act */
  async #each(all, what, act) {
    for (let first = 0; first < all.length; first += CALLS) {
      this.begin(`Reading ${what}: ${first.toLocaleString("en")} of ${all.length.toLocaleString("en")}.`);
      await Promise.all(all.slice(first, first + CALLS).map(act));
    }
  }

  /** @param {Proven} query */
  #about(query) {
    const slots = [...query.slots.keys()].map((slot) => `the slot ${slot}`);
    const names = [...query.facts.keys(), ...slots, ...[...query.logs.keys()].map((log) => `the log ${log}`)];
    const of = query.transaction === null ? query.account ?? "the header" : `the transaction ${query.transaction}`;
    return `${few(names)} of ${of} at block ${query.blockNumber} of ${this.#name(query.chain)}`;
  }

  #name(chain) {
    return this.names.has(chain) ? `${this.names.get(chain)} (${chain})` : `chain ${chain}`;
  }
}

// --- The registry's functions -----------------------------------------------------------------------------------------

/** @typedef {{ what: string, to: string | null, data: string, word: string }} Call */

/** Data of a call whose arguments are words. @param {string} signature @param {(string | bigint | number)[]} words */
function dataOf(signature, ...words) {
  const selector = keccak(new TextEncoder().encode(signature)).slice(0, 8);
  const word = (value) => (typeof value === "string" ? value.replace(/^0x/, "").toLowerCase() : value.toString(16));
  return `0x${selector}${words.map((value) => word(value).padStart(64, "0")).join("")}`;
}

/**
 * The calls by which a facts reader verifies the proofs once more, under roots that the registry holds.
 * @param {Proven} query @param {string | undefined} reader @returns {Call[]}
 */
function callsByProof({ account, blockNumber, chain, facts, nodes, nodesOfSlots, shown, slots }, reader) {
  if (!reader || !shown || account === null) return [];
  const ends = [BigInt(chain), BigInt(blockNumber), account];
  const hashOfCode = shown.exists ? shown.words.get("CODE_HASH") : keccak(new Uint8Array());
  const of = ["NONCE", "BALANCE"].map((name) => shown.words.get(name)).join("");
  const calls = [{
    what: `${account} at block ${blockNumber}`,
    to: reader,
    data: dataOf("accountByProof(uint256,uint256,address,bytes)", ...ends, 4 * 32) + listOf(nodes),
    word: `0x${of}${hashOfCode}${shown.words.get("STORAGE_ROOT")}`,
  }];
  if (!facts.has("STORAGE_ROOT")) return calls;
  return [...calls, ...[...slots].map(([slot, word]) => ({
    what: `the slot ${slot} of ${account} at block ${blockNumber}`,
    to: reader,
    data: dataOf("slotByProof(uint256,uint256,address,bytes32,bytes)", ...ends, slot, 5 * 32) +
      listOf(nodesOfSlots.get(slot) ?? []),
    word,
  }))];
}

/** Nodes as one argument of bytes: an RLP list. The node of an empty trie is none. @param {{bytes: Uint8Array}[]} nodes */
function listOf(nodes) {
  const digits = nodes.filter(({ bytes }) => bytes.length > 1).map(({ bytes }) => encoded(0x80, hexOf(bytes))).join("");
  const list = encoded(0xc0, digits), size = (list.length / 2).toString(16).padStart(64, "0");
  return size + list.padEnd(64 * Math.ceil(list.length / 64), "0");
}

/** RLP of a content. A node is never a single byte. @param {number} kind 0x80 of bytes, 0xc0 of a list @param {string} digits */
function encoded(kind, digits) {
  const size = digits.length / 2, hex = (number) => number.toString(16).replace(/^(?=(..)*.$)/, "0");
  const prefix = size < 56 ? hex(kind + size) : hex(kind + 55 + hex(size).length / 2) + hex(size);
  return prefix + digits;
}

/**
 * The calls that read each fact from its registry, with the expected words.
 * @param {Proven} query @returns {Call[]}
 */
function callsOf(query) {
  const { account, registry, transaction } = query, block = BigInt(query.blockNumber);
  const of = transaction !== null ? `the transaction ${transaction}` : account ?? `query ${query.number}`;
  const calls = [];
  const dataOfField = (name) => {
    if (account !== null) {
      return dataOf("accountField(address,uint256,uint8)", account, block, ACCOUNT_PROPERTIES.indexOf(name));
    }
    if (transaction === null) return dataOf("headerField(uint256,uint8)", block, HEADER_PROPERTIES.indexOf(name));
    const index = BigInt(transaction);
    if (name === "HASH") return dataOf("transactionHash(uint256,uint32)", block, index);
    return dataOf("receiptField(uint256,uint32,uint8)", block, index, RECEIPT_PROPERTIES.indexOf(name));
  };
  for (const [name, word] of query.facts) {
    const data = dataOfField(name);
    calls.push({ what: `${name} of ${of} at block ${block}`, to: registry, data, word });
  }
  for (const [slot, word] of query.slots) {
    const data = dataOf("accountStorageSlotValues(address,uint256,bytes32)", account ?? "", block, slot);
    calls.push({ what: `the slot ${slot} of ${of} at block ${block}`, to: registry, data, word });
  }
  for (const [log, word] of query.logs) {
    const data = dataOf("logHash(uint256,uint32,uint32)", block, BigInt(transaction ?? 0), BigInt(log));
    calls.push({ what: `the log ${log} of ${of} at block ${block}`, to: registry, data, word });
  }
  if (query.timestamp !== null) {
    const data = dataOf("blockAtTimestamp(uint256)", BigInt(query.timestamp));
    const word = `0x${block.toString(16).padStart(64, "0")}`;
    calls.push({ what: `the block at the time ${query.timestamp}`, to: registry, data, word });
  }
  return calls;
}

// --- Words ------------------------------------------------------------------------------------------------------------

/** @param {number} count @param {string} one @param {string} [several] */
const counted = (count, one, several = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : several}`;

/** @param {number} blocks */
const these = (blocks) => (blocks === 1 ? "this block" : `these ${blocks.toLocaleString("en")} blocks`);

/** @param {Proven[]} queries */
const named = (queries) => few(queries.map(({ number }) => `query ${number}`));

/** @param {unknown[]} all */
function few(all) {
  const more = all.length - MOST_NAMED;
  return all.slice(0, MOST_NAMED).join(", ") + (more > 0 ? ` and ${more.toLocaleString("en")} more` : "");
}
