// Sends transactions by a wallet. What the wallet is asked for is noted before it is asked, and the result of that is
// found out before anything else is sent, also by the next visit of the page.
//
// A request that was never sent may still wait in the wallet, where its owner could approve it besides the next one. No
// page can take it back, so the owner is asked to decline it. The next request has the same identifier or nonce: a
// wallet accepts an identifier once (EIP-5792), and a chain a nonce. Some wallets choose another nonce. There, a user
// who approves a request after saying that it was declined has sent it twice.
//
// A note is one of
//   {wallet, id, isTaken?}    calls that the wallet was asked to send (EIP-5792), by the identifier they were given; with
//                             `isTaken` it refuses that one as a duplicate
//   {account, nonce}          a transaction that the wallet was asked to send, with this nonce
//   {account, nonce, hash}    that transaction, as sent
//   {block, id?}              all is settled: the chain as of this block has it. What was given up
//   {block, account?, nonce?} before it was sent is asked for again under its `id` or `nonce`

import { Failure, ask, until } from "./wallets.js";

/** @typedef {import("./wallets.js").Wallet} Wallet */
/** @typedef {{to: string, data: string, value: string, gas: string, what: string}} Transaction */

const POLL_MS = 1000;
// A limit of one transaction, because a wallet may make one of several calls: nodes accept 128 KiB.
const MOST_CHARS = 2 * 120_000;
// Nothing was sent, because the wallet doesn't know the method, its version, the chain or so many calls (EIP-5792).
const NOT_TOGETHER = new Set([4200, -32601, -32602, 5700, 5710, 5740, 5750, 5760]);
const DECLINED = 4001, DUPLICATE = 5720, UNKNOWN_CALLS = 5730;
// The wallet has answered and holds nothing (EIP-1193, EIP-1474). After other errors it may: some come of a lost link.
const NOT_TAKEN = new Set([DECLINED, 4100, 4200, -32601, -32602]);

/** The outcome of a request that was not sent, and that the wallet may still hold. */
const UNSENT = Symbol("unsent");

/** This browser's note of the last request for a batch. */
export class Note {
  /** @param {string} batch */
  constructor(batch) {
    this.key = `sending:${batch}`;
    this.known = {};
  }

  read() {
    try {
      this.known = JSON.parse(localStorage.getItem(this.key) ?? "{}");
    } catch { /* It may be forbidden; the page itself remembers until it is left. */ }
    return this.known;
  }

  write(known) {
    this.known = known;
    try {
      if (Object.keys(known).length) localStorage.setItem(this.key, JSON.stringify(known));
      else localStorage.removeItem(this.key);
    } catch { /* as above */ }
  }

  /** Notes that the request was not sent and is declined. The next one has the same identifier or nonce. */
  giveUp() {
    const { id, isTaken, account, nonce } = this.read();
    if (id === undefined) this.write({ block: 0, account, nonce });
    else this.write(isTaken ? {} : { block: 0, id });
  }

  /** True if a request was made whose result isn't known. */
  get isOpen() {
    const known = this.read();
    return known.block === undefined && (known.id !== undefined || known.nonce !== undefined);
  }
}

/** One account of a wallet that sends on one chain. */
export class Sender {
  /**
   * @param {Wallet} wallet
   * @param {string} account
   * @param {{id: string, name: string}} chain its id as JSON-RPC writes it
   * @param {Note} note
   * @param {AbortSignal} signal ends what waits
   * @param {(...sentences: string[]) => void} say
   */
  constructor(wallet, account, chain, note, signal, say) {
    this.wallet = wallet;
    this.account = account;
    this.chain = chain;
    this.note = note;
    this.signal = signal;
    this.say = say;
    /** True if the wallet accepts several calls at once; undefined until it was asked. @type {boolean | undefined} */
    this.isTogether = undefined;
  }

  /** Has the wallet use the chain. */
  async choose() {
    if (await this.#isChosen()) return;
    this.say(`Waiting for ${this.wallet.name} to switch to ${this.chain.name}.`);
    await this.#ask("wallet_switchEthereumChain", [{ chainId: this.chain.id }]);
    if (!(await this.#isChosen())) {
      const { name } = this.chain;
      throw new Failure(`${this.wallet.name} is on another chain than ${name}. Switch there, then try again.`);
    }
  }

  async #isChosen() {
    return BigInt(await this.#ask("eth_chainId")) === BigInt(this.chain.id);
  }

  /** How many transactions of the account are not in a block yet, as far as the wallet's node knows. */
  async waiting() {
    const [latest, pending] = await this.#counts(this.account);
    return pending - latest;
  }

  /**
   * Waits for the result of the noted request, and notes it. Resolves to true if it failed.
   * @param {() => boolean} isWanted returns whether the user still waits
   * @param {(isUnsent: boolean) => void} look called at each try; true: it wasn't sent, but the wallet may hold it
   */
  async settle(isWanted = () => true, look = () => {}) {
    for (;;) {
      const outcome = await this.#outcome(this.note.read()).catch(ofWallet);
      if (!isWanted()) return false;
      look(outcome === UNSENT);
      if (outcome && outcome !== UNSENT) {
        const { failed, ...settled } = outcome;
        this.note.write(settled);
        return failed ?? false;
      }
      await pause(POLL_MS, this.signal);
    }
  }

  /**
   * Sends all, each when those before it are in a block. Throws `Failure`.
   * @param {Transaction[]} transactions
   * @param {number} mostGas of a transaction that a wallet makes of several calls
   */
  async send(transactions, mostGas) {
    await this.choose();
    this.isTogether ??= await this.#canSendTogether();
    let sent = 0;
    for (const group of this.isTogether ? inGroups(transactions, mostGas) : transactions.map((one) => [one])) {
      if (this.isTogether && (await this.#sendTogether(group, sent, transactions.length))) {
        sent += group.length;
        continue;
      }
      for (const one of group) await this.#sendOne(one, ++sent, transactions.length);
    }
  }

  async #canSendTogether() {
    try {
      const capabilities = await this.#ask("wallet_getCapabilities", [this.account, [this.chain.id]]);
      return typeof capabilities === "object" && capabilities !== null;
    } catch (error) {
      ofWallet(error);
      if (error.code === DECLINED) throw error;
      return false;
    }
  }

  /** Has the wallet send several calls at once. True: they are in a block. False: the wallet can't do that. */
  async #sendTogether(group, sent, all) {
    const id = this.note.read().id ?? newId();
    const last = sent + group.length;
    const numbers = group.length === 1 ? `transaction ${last}` : `transactions ${sent + 1} to ${last}`;
    this.say(`Confirm ${numbers} of ${all} in ${this.wallet.name}.`, ...group.map((one) => one.what));
    this.note.write({ wallet: this.wallet.name, id });
    const calls = group.map(({ to, data, value }) => ({ to, data, value }));
    const asked = { version: "2.0.0", id, from: this.account, chainId: this.chain.id, atomicRequired: false, calls };
    try {
      const answer = await this.#ask("wallet_sendCalls", [asked]);
      this.note.write({ wallet: this.wallet.name, id: answer?.id ?? id });
      this.say(`${this.wallet.name} sends ${numbers} of ${all}. Waiting until that is in a block.`);
    } catch (error) {
      if (NOT_TOGETHER.has(error.code)) {
        this.note.write({});
        return (this.isTogether = false);
      }
      if (NOT_TAKEN.has(error.code)) this.note.write({});
      if (error.code !== DUPLICATE) throw error;
      this.note.write({ wallet: this.wallet.name, id, isTaken: true });
      this.say(`${this.wallet.name} has ${numbers} of ${all} already. Waiting until that is in a block.`);
    }
    if (await this.settle()) {
      throw new Failure(`Not all of ${numbers} worked on the chain. Try again: the page offers the rest.`);
    }
    return true;
  }

  /** @param {Transaction} one */
  async #sendOne({ to, data, value, gas, what }, number, all) {
    await this.choose();
    this.say(`Confirm transaction ${number} of ${all} in ${this.wallet.name}.`, what);
    const nonce = await this.#nonce();
    this.note.write({ account: this.account, nonce });
    const asked = { from: this.account, to, data, value, gas, chainId: this.chain.id, nonce: `0x${nonce.toString(16)}` };
    try {
      const hash = await this.#ask("eth_sendTransaction", [asked]);
      this.note.write({ account: this.account, nonce, hash });
      this.say(`Transaction ${number} of ${all} is sent. Waiting until it is in a block.`, hash);
    } catch (error) {
      if (NOT_TAKEN.has(error.code)) this.note.write({});
      throw error;
    }
    if (await this.settle()) {
      throw new Failure(`Transaction ${number} of ${all} failed on the chain. Try again: the page offers the missing ones.`);
    }
  }

  /** The nonce of the transaction that was given up, or else the account's next. */
  async #nonce() {
    const { account, nonce } = this.note.read();
    const [, next] = await this.#counts(this.account);
    if (account !== this.account || nonce === undefined) return next;
    if (next <= nonce) return nonce;
    this.note.write({ account, nonce });
    throw new Failure("Your account has sent a transaction meanwhile. Try again: the page offers what is still missing.");
  }

  // --- Results ---------------------------------------------------------------------------------------------------------

  /** The note of a settled request, with `failed`; `UNSENT` or null while it isn't settled. */
  async #outcome(known) {
    return known.id === undefined ? this.#ofTransaction(known) : this.#ofCalls(known);
  }

  async #ofCalls({ id, wallet }) {
    if (wallet !== this.wallet.name) return null; // Only that one knows them.
    let answer;
    try {
      answer = await this.#ask("wallet_getCallsStatus", [id]);
    } catch (error) {
      if (error.code === UNKNOWN_CALLS) return UNSENT;
      throw error;
    }
    const status = Number(answer?.status);
    if (!(status >= 200)) return null;
    const blocks = (answer.receipts ?? []).map((receipt) => Number(receipt.blockNumber));
    return { block: blocks.length ? Math.max(...blocks) : await this.#head(), failed: status !== 200 };
  }

  async #ofTransaction(known) {
    const { account, nonce, hash, isSure } = known;
    if (!hash) {
      const [latest, pending] = await this.#counts(account);
      if (pending <= nonce) return UNSENT;
      return pending === latest ? { block: await this.#head() } : null;
    }
    const receipt = async () => {
      const found = await this.#ask("eth_getTransactionReceipt", [hash]);
      return found?.blockNumber ? { block: Number(found.blockNumber), failed: Number(found.status) === 0 } : null;
    };
    const mined = await receipt();
    if (mined) return mined;
    const seen = await this.#ask("eth_getTransactionByHash", [hash]);
    if (seen) {
      if (!isSure) this.note.write({ ...known, nonce: Number(seen.nonce), isSure: true });
      return null;
    }
    // Another transaction with the nonce may be in its place: wallets send one to speed it up or to cancel it.
    const [latest] = await this.#counts(account);
    if (!isSure || latest <= nonce) return null;
    return (await receipt()) ?? { block: await this.#head() };
  }

  async #counts(account) {
    const of = async (tag) => Number(await this.#ask("eth_getTransactionCount", [account, tag]));
    return [await of("latest"), await of("pending")];
  }

  async #head() {
    return Number(await this.#ask("eth_blockNumber"));
  }

  #ask(method, params = []) {
    const { name } = this.wallet;
    return until(this.signal, ask(this.wallet, method, params, {
      instead: "list the transactions and send them elsewhere",
      declined: `You declined in ${name}, so nothing was sent now. Earlier transactions count.`,
      noChain: `${name} doesn't have the chain ${this.chain.name} (${BigInt(this.chain.id)}). Add it there, then try again.`,
    }));
  }
}

/** @param {number} ms @param {AbortSignal} signal */
export const pause = (ms, signal) => until(signal, new Promise((resolve) => setTimeout(resolve, ms)));

/** Ignores a refusal of the wallet, which may answer the next time. @param {unknown} error */
function ofWallet(error) {
  if (!(error instanceof Failure)) throw error;
  return null;
}

/** Neighbours that fit into one transaction together. @param {Transaction[]} transactions @param {number} mostGas */
function inGroups(transactions, mostGas) {
  /** @type {Transaction[][]} */
  const groups = [];
  let gas = 0, chars = 0;
  for (const one of transactions) {
    [gas, chars] = [gas + Number(one.gas), chars + one.data.length];
    if (groups.length && gas <= mostGas && chars <= MOST_CHARS) groups.at(-1)?.push(one);
    else {
      groups.push([one]);
      [gas, chars] = [Number(one.gas), one.data.length];
    }
  }
  return groups;
}

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
