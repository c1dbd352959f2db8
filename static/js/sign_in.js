// Signs in with a wallet of the browser: it signs the server's message (personal_sign), and the next page opens. Each
// failure is shown as a sentence.

import {
  Failure, accountOf, ask as askWallet, findWallets, offer as showChoices, post as postWith, tell as show, until,
  walletButton,
} from "./wallets.js";

/** @typedef {import("./wallets.js").Wallet} Wallet */

const list = document.getElementById("wallets");
const status = document.getElementById("wallet-status");
const actions = document.getElementById("wallet-actions");
const noWallet = document.getElementById("no-wallet");
const form = /** @type {HTMLFormElement} */ (document.getElementById("manual"));
const chains = [...form.elements.chainId.options].map((option) => ({ id: BigInt(option.value), label: option.text }));
const words = { instead: "sign by hand" };

/** The sign-in under way; another one, or null, once it was cancelled. @type {AbortController | null} */
let current = null;
/** Cancels it; null once the service has the signature. @type {(() => void) | null} */
let cancel = null;
// A user who leaves the page, or takes another of its forms, cancels. A page that is left may come back as it was.
for (const leaving of ["pagehide", "submit"]) window.addEventListener(leaving, () => cancel?.());

// --- Finding wallets -------------------------------------------------------------------------------------------------

const found = [];
findWallets(addWallet).then(() => { noWallet.hidden = found.length > 0; });

/** @param {Wallet} wallet */
function addWallet(wallet) {
  found.push(wallet);
  const button = walletButton(wallet, "Sign in");
  button.disabled = current !== null;
  button.addEventListener("click", () => run(wallet, button));
  const item = document.createElement("li");
  item.append(button);
  list.append(item);
  list.hidden = false;
  noWallet.hidden = true;
}

// --- One sign-in -----------------------------------------------------------------------------------------------------

/**
 * @param {Wallet} wallet
 * @param {HTMLButtonElement} button
 */
async function run(wallet, button) {
  const attempt = new AbortController();
  current = attempt;
  setBusy(true);
  offerCancel(() => end(button, ["Cancelled. Nothing was signed in."]));
  const notices = [];
  try {
    const next = await signIn(wallet, attempt.signal, notices);
    tell(["Signed in. Opening the next page …"]);
    location.assign(next);
  } catch (error) {
    if (attempt.signal.aborted) return;
    const expected = error instanceof Failure;
    if (!expected) console.warn(error);
    const sentence = expected ? error.message : `${wallet.name} answered something unexpected. Try again, or sign by hand.`;
    end(button, [sentence, ...notices], true);
    if (notices.length > 0) {
      offer(chains.map(({ id, label }) => [`Switch ${wallet.name} to ${label}`, () => switchChain(wallet, button, id)]));
    }
  }
}

/**
 * Signs in. After a cancellation, no answer of the wallet signs anybody in.
 * @param {AbortSignal} signal ends it
 * @param {string[]} notices gets a sentence if the wallet's chain is none of this service's
 * @returns {Promise<string>} the path that comes next
 */
async function signIn(wallet, signal, notices) {
  tell([`Waiting for ${wallet.name}. Open it and choose an account.`]);
  const address = await until(signal, accountOf(wallet, words));
  const walletChain = BigInt(await until(signal, ask(wallet, "eth_chainId")));
  const chain = chains.find(({ id }) => id === walletChain) ?? chains[0];
  if (chain.id !== walletChain) {
    notices.push(
      `${wallet.name} is on chain ${walletChain}, which this service doesn't use; the message names ${chain.label} ` +
        "instead. That makes a difference only to contract wallets.",
    );
  }

  const { message } = await until(signal, post(form.action, { address, chainId: chain.id.toString() }, signal));
  tell([`Sign the message in ${wallet.name}.`, ...notices]);
  const signature = await until(signal, ask(wallet, "personal_sign", [hex(message), address]));
  tell(["Checking the signature …", ...notices]);
  // The service may have begun the session already: what can't be taken back isn't offered.
  offerCancel(null);
  const signed = { message, signature, next: form.elements.next.value };
  const { next } = await until(signal, post(form.dataset.verify, signed, signal));
  return next;
}

async function switchChain(wallet, button, id) {
  const attempt = new AbortController();
  current = attempt;
  setBusy(true);
  offerCancel(() => end(button, ["Cancelled."]));
  tell([`Waiting for ${wallet.name} to switch.`]);
  try {
    await ask(wallet, "wallet_switchEthereumChain", [{ chainId: `0x${id.toString(16)}` }]);
    if (current === attempt) await run(wallet, button);
  } catch (error) {
    const sentence = error instanceof Failure ? error.message : `${wallet.name} could not switch.`;
    if (current === attempt) end(button, [sentence], true);
  }
}

/** @param {Wallet} wallet @param {string} method @param {unknown[]} params */
function ask(wallet, method, params = []) {
  const declined = method === "personal_sign"
    ? { declined: "You declined to sign the message, so you are not signed in. Nothing else happened." } : {};
  const noChain = `${wallet.name} doesn't have that chain. Add it there, or sign in on the chain it is on.`;
  return askWallet(wallet, method, params, { ...words, ...declined, noChain });
}

/** Posts JSON to this service. @param {string} path @param {object} body @param {AbortSignal} signal */
async function post(path, body, signal) {
  try {
    return await postWith(path, form, body, signal);
  } catch (error) {
    if (["unknown_nonce", "expired"].includes(error.code)) {
      throw new Failure("The message has expired. Try again with a new message.");
    }
    throw error;
  }
}

/** A text as personal_sign takes it: its UTF-8 bytes in hex. */
function hex(text) {
  return `0x${Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// --- The page --------------------------------------------------------------------------------------------------------

/** @param {HTMLButtonElement} button the one that began the sign-in; it gets the focus back */
function end(button, sentences, failed = false) {
  current?.abort();
  current = null;
  offerCancel(null);
  setBusy(false);
  tell(sentences, failed);
  button.focus();
}

function setBusy(busy) {
  for (const button of list.querySelectorAll("button")) button.disabled = busy;
  list.setAttribute("aria-busy", String(busy));
}

/** @param {string[]} sentences */
const tell = (sentences, failed = false) => show(status, sentences, { failed });

/** @param {(() => void) | null} action */
function offerCancel(action) {
  cancel = action;
  offer(action ? [["Cancel", action]] : []);
}

/** @param {[string, () => void][]} choices */
const offer = (choices) => showChoices(actions, choices);
