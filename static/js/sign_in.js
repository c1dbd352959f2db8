// Signing in with a wallet of the browser: finds wallets (EIP-6963, else window.ethereum), has one sign the server's
// message (EIP-1193, personal_sign), and goes on to the next page. Whatever fails is said in a sentence.

/** @typedef {{request: (call: {method: string, params?: unknown[]}) => Promise<any>}} Provider */
/** @typedef {{name: string, icon: string, provider: Provider}} Wallet */

const SERVER_MS = 20_000;
// Wallets announce themselves at once when asked; a slow one still gets its button when it does.
const DISCOVERY_MS = 400;
const NAME_CHARS = 60; // A wallet names itself, and its name is part of sentences.

const list = document.getElementById("wallets");
const status = document.getElementById("wallet-status");
const actions = document.getElementById("wallet-actions");
const noWallet = document.getElementById("no-wallet");
const form = /** @type {HTMLFormElement} */ (document.getElementById("manual"));
const chains = [...form.elements.chainId.options].map((option) => ({ id: BigInt(option.value), label: option.text }));

/** What is said to the person instead of a result. */
class Failure extends Error {}

/** The sign-in under way; another object, or null, once it was cancelled. */
let current = null;

// --- Finding wallets -------------------------------------------------------------------------------------------------

const known = new Set();

window.addEventListener("eip6963:announceProvider", (event) => {
  const { info, provider } = event.detail ?? {};
  if (!info || !provider || known.has(info.uuid)) return;
  known.add(info.uuid);
  show({ name: [...String(info.name || "Wallet")].slice(0, NAME_CHARS).join(""), icon: String(info.icon || ""), provider });
});
window.dispatchEvent(new Event("eip6963:requestProvider"));

setTimeout(() => {
  if (known.size === 0 && window.ethereum) {
    known.add("window.ethereum");
    show({ name: "Browser wallet", icon: "", provider: window.ethereum });
  }
  noWallet.hidden = known.size > 0;
}, DISCOVERY_MS);

/** @param {Wallet} wallet */
function show(wallet) {
  const button = document.createElement("button");
  button.className = "wallet";
  // As an image a picture can run no script (EIP-6963); another host is never asked for one.
  if (/^data:image\//i.test(wallet.icon)) {
    const image = Object.assign(new Image(28, 28), { src: wallet.icon, alt: "" });
    image.addEventListener("error", () => image.remove());
    button.append(image);
  }
  button.append(wallet.name);
  button.setAttribute("aria-label", `Sign in with ${wallet.name}`);
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
  const attempt = {};
  current = attempt;
  const say = (...sentences) => current === attempt && tell(sentences);
  setBusy(true);
  offer([["Cancel", () => end(button, ["Cancelled. Nothing was signed in."])]]);
  const notices = [];
  try {
    const next = await signIn(wallet, say, notices);
    if (current !== attempt) return;
    tell(["Signed in. Opening the next page …"]);
    offer([]);
    location.assign(next);
  } catch (error) {
    if (current !== attempt) return;
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
 * @param {string[]} notices gets a sentence if the wallet's chain is none of this service's
 * @returns {Promise<string>} the path that comes next
 */
async function signIn(wallet, say, notices) {
  say(`Waiting for ${wallet.name}. Open it and choose an account.`);
  const accounts = await ask(wallet, "eth_requestAccounts");
  const address = Array.isArray(accounts) ? accounts[0] : undefined;
  if (!address) {
    throw new Failure(`${wallet.name} shows no account. It may be locked: unlock it, let it use this site, then try again.`);
  }
  const walletChain = BigInt(await ask(wallet, "eth_chainId"));
  const chain = chains.find(({ id }) => id === walletChain) ?? chains[0];
  if (chain.id !== walletChain) {
    notices.push(
      `${wallet.name} is on chain ${walletChain}, which this service doesn't use; the message names ${chain.label} ` +
        "instead. That makes a difference only to contract wallets.",
    );
  }

  const { message } = await post(form.action, { address, chainId: chain.id.toString() });
  say(`Sign the message in ${wallet.name}.`, ...notices);
  const signature = await ask(wallet, "personal_sign", [hex(message), address]);
  say("Checking the signature …", ...notices);
  const { next } = await post(form.dataset.verify, { message, signature, next: form.elements.next.value });
  return next;
}

async function switchChain(wallet, button, id) {
  const attempt = {};
  current = attempt;
  setBusy(true);
  offer([["Cancel", () => end(button, ["Cancelled."])]]);
  tell([`Waiting for ${wallet.name} to switch.`]);
  try {
    await ask(wallet, "wallet_switchEthereumChain", [{ chainId: `0x${id.toString(16)}` }]);
    if (current === attempt) await run(wallet, button);
  } catch (error) {
    const sentence = error instanceof Failure ? error.message : `${wallet.name} could not switch.`;
    if (current === attempt) end(button, [sentence], true);
  }
}

/** Asks the wallet (EIP-1193). */
async function ask(wallet, method, params = []) {
  try {
    return await wallet.provider.request({ method, params });
  } catch (error) {
    throw new Failure(walletSentence(wallet.name, method, error));
  }
}

function walletSentence(name, method, error) {
  switch (Number(error?.code)) {
    case 4001: // EIP-1193: the user rejected the request
      if (method === "personal_sign") return "You declined to sign the message, so you are not signed in. Nothing else happened.";
      return `You declined in ${name}. Nothing happened; try again whenever you like.`;
    case -32002: // EIP-1474: resource unavailable, which wallets answer while an earlier request is open
      return `${name} still waits for your answer to an earlier request. Open it, answer there, then try again.`;
    case 4100: // EIP-1193: unauthorized
      return `${name} doesn't let this site use the account. It may be locked: unlock it, then try again.`;
    case 4900: // EIP-1193: disconnected from all chains, or from this one
    case 4901:
      return `${name} has no connection to its chain. Check it there, then try again.`;
    case 4902: // EIP-3085: the chain is not in the wallet
      return `${name} doesn't have that chain. Add it there, or sign in on the chain it is on.`;
    case 4200: // EIP-1193: unsupported method
    case -32601:
      return `${name} can't do this (${method}). Use another wallet, or sign by hand.`;
    default: {
      const words = String(error?.message ?? "").slice(0, 200);
      return `${name} refused${words ? `: “${words}”` : ""}. Try again, or sign by hand.`;
    }
  }
}

/** Posts JSON to this service. */
async function post(path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: {
        Accept: "application/json",
        "Content-Type": "application/json",
        "X-CSRFToken": form.elements.csrfmiddlewaretoken.value,
      },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(SERVER_MS),
    });
  } catch {
    throw new Failure("This service can't be reached. Check your connection, then try again.");
  }
  const content = await answer.json().catch(() => null);
  if (answer.ok && content) return content;
  switch (content?.code) {
    case "csrf_failed":
      throw new Failure("This page has been open for too long. Reload it, then try again.");
    case "unknown_nonce":
    case "expired":
      throw new Failure("The message has expired. Try again: you get a new one.");
    default:
      throw new Failure(content?.error ?? `This service answered with error ${answer.status}. Try again in a moment.`);
  }
}

/** A text as personal_sign takes it: its UTF-8 bytes in hex. */
function hex(text) {
  return `0x${Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// --- What is seen ----------------------------------------------------------------------------------------------------

/** @param {HTMLButtonElement} button the one that began, which gets the focus back */
function end(button, sentences, failed = false) {
  current = null;
  offer([]);
  setBusy(false);
  tell(sentences, failed);
  button.focus();
}

function setBusy(busy) {
  for (const button of list.querySelectorAll("button")) button.disabled = busy;
  list.setAttribute("aria-busy", String(busy));
}

function tell(sentences, failed = false) {
  status.replaceChildren(
    ...sentences.map((sentence, index) => {
      const paragraph = Object.assign(document.createElement("p"), { textContent: sentence });
      paragraph.className = index ? "notice" : failed ? "error" : "busy";
      return paragraph;
    }),
  );
}

/** @param {[string, () => void][]} choices */
function offer(choices) {
  actions.replaceChildren(
    ...choices.map(([text, act]) => {
      const button = Object.assign(document.createElement("button"), { textContent: text, className: "secondary" });
      button.addEventListener("click", act);
      return button;
    }),
  );
  actions.hidden = choices.length === 0;
}
