// Wallets of the browser, for pages on which they sign or send. They are found by EIP-6963 or as `window.ethereum`, and
// called by EIP-1193. Each refusal of a wallet becomes a sentence.

/** @typedef {{request: (call: {method: string, params?: unknown[]}) => Promise<any>}} Provider */
/** @typedef {{name: string, icon: string, provider: Provider}} Wallet */
/**
 * Words for a wallet's refusal: another way to do the same, and sentences of their own for two causes.
 * @typedef {{instead: string, declined?: string, noChain?: string}} Words
 */

// Wallets announce themselves at once when asked. A slower one is still added later.
const DISCOVERY_MS = 400;
const SERVER_MS = 40_000;
const NAME_CHARS = 60; // A wallet names itself, and its name is part of sentences.

/** A sentence for the user, where there is no result. */
export class Failure extends Error {
  /**
   * @param {string} sentence
   * @param {number | string} [code] of the wallet (EIP-1193, EIP-5792), or of this service
   */
  constructor(sentence, code) {
    super(sentence);
    this.code = code;
  }
}

/**
 * The wallets that have announced themselves since the page was opened, by their uuid and name: some share a uuid.
 * @type {Map<string, Wallet>}
 */
const announced = new Map();
const late = new EventTarget();
window.addEventListener("eip6963:announceProvider", (event) => {
  const { info, provider } = event.detail ?? {};
  if (!info || !provider) return;
  const name = [...String(info.name || "Wallet")].slice(0, NAME_CHARS).join("");
  const key = `${info.uuid} ${name}`;
  if (announced.has(key)) return;
  const wallet = { name, icon: String(info.icon || ""), provider };
  announced.set(key, wallet);
  late.dispatchEvent(new CustomEvent("wallet", { detail: wallet }));
});

/**
 * Calls `found` once for each wallet, also for late ones. Resolves when wallets had time to announce themselves.
 * @param {(wallet: Wallet) => void} found
 * @param {AbortSignal} [signal] ends it
 */
export async function findWallets(found, signal) {
  for (const wallet of announced.values()) found(wallet);
  late.addEventListener("wallet", (event) => found(event.detail), { signal });
  window.dispatchEvent(new Event("eip6963:requestProvider"));
  await new Promise((resolve) => setTimeout(resolve, DISCOVERY_MS));
  // A wallet without EIP-6963 is only in `window.ethereum`, even if others have announced themselves.
  const addUnannounced = () => {
    const provider = window.ethereum;
    if (signal?.aborted || !provider || [...announced.values()].some((wallet) => wallet.provider === provider)) return;
    found({ name: "Browser wallet", icon: "", provider });
  };
  if (window.ethereum) addUnannounced();
  else window.addEventListener("ethereum#initialized", addUnannounced, { once: true, signal });
}

/**
 * A button with the wallet's picture and name.
 * @param {Wallet} wallet
 * @param {string} verb what it does, such as "Sign in"
 */
export function walletButton(wallet, verb) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "wallet" });
  // As an image a picture can run no script (EIP-6963); another host is never asked for one.
  if (/^data:image\//i.test(wallet.icon)) {
    const image = Object.assign(new Image(28, 28), { src: wallet.icon, alt: "" });
    image.addEventListener("error", () => image.remove());
    button.append(image);
  }
  button.append(wallet.name);
  button.setAttribute("aria-label", `${verb} with ${wallet.name}`);
  return button;
}

/**
 * The only wallet, or the one that the user chooses; null if there is no wallet.
 * @param {{area: HTMLElement, list: HTMLElement, status: HTMLElement, actions: HTMLElement}} parts of the page
 * @param {string} verb what the wallet is chosen for, such as "Send"
 * @param {AbortController} controller
 * @returns {Promise<Wallet | null>}
 */
export async function chooseWallet({ area, list, status, actions }, verb, controller) {
  tell(status, ["Looking for wallets in this browser."]);
  /** @type {(wallet: Wallet) => void} */
  let choose = () => {};
  const chosen = new Promise((resolve) => { choose = resolve; });
  /** @type {Wallet[]} */
  const found = [];
  list.replaceChildren();
  const looking = new AbortController();
  try {
    await until(controller.signal, findWallets((wallet) => {
      found.push(wallet);
      const button = walletButton(wallet, verb);
      button.addEventListener("click", () => choose(wallet));
      const item = document.createElement("li");
      item.append(button);
      list.append(item);
    }, looking.signal));
    if (found.length < 2) return found[0] ?? null;
    tell(status, ["Choose a wallet."]);
    offer(actions, [["Not now", () => controller.abort()]]);
    list.hidden = false;
    lead(area, list.querySelector("button"));
    return await until(controller.signal, chosen);
  } finally {
    // Otherwise a wallet that comes later would get a button here, which nobody listens to.
    looking.abort();
    list.hidden = true;
  }
}

/**
 * Asks the wallet (EIP-1193). Throws `Failure`.
 * @param {Wallet} wallet
 * @param {string} method
 * @param {unknown[]} params
 * @param {Words} words
 */
export async function ask(wallet, method, params, words) {
  try {
    return await wallet.provider.request({ method, params });
  } catch (error) {
    // Some wallets wrap the error of their node.
    const code = Number(error?.data?.originalError?.code ?? error?.code);
    throw new Failure(sentenceFor(wallet.name, method, code, error?.message, words), code);
  }
}

/** The account that the wallet lets this site use. @param {Wallet} wallet @param {Words} words */
export async function accountOf(wallet, words) {
  const accounts = await ask(wallet, "eth_requestAccounts", [], words);
  const address = Array.isArray(accounts) ? accounts[0] : undefined;
  if (address) return address;
  throw new Failure(`${wallet.name} shows no account. It may be locked: unlock it, let it use this site, then try again.`);
}

/** @param {string} name @param {string} method @param {number} code @param {unknown} message @param {Words} words */
function sentenceFor(name, method, code, message, words) {
  switch (code) {
    case 4001: // EIP-1193: the user rejected the request
      return words.declined ?? `You declined in ${name}. Nothing happened; try again whenever you like.`;
    case -32002: // EIP-1474: resource unavailable, which wallets answer while an earlier request is open
      return `${name} still waits for your answer to an earlier request. Open it, answer there, then try again.`;
    case 4100: // EIP-1193: unauthorized
      return `${name} doesn't let this site use the account. It may be locked: unlock it, then try again.`;
    case 4900: // EIP-1193: disconnected from all chains, or from this one
    case 4901:
      return `${name} has no connection to its chain. Check it there, then try again.`;
    case 4902: // EIP-3085: the chain is not in the wallet
      return words.noChain ?? `${name} doesn't have that chain.`;
    case 4200: // EIP-1193: unsupported method
    case -32601:
      return `${name} can't do this (${method}). Use another wallet, or ${words.instead}.`;
    default: {
      const said = String(message ?? "").slice(0, 200);
      return `${name} refused${said ? `: “${said}”` : ""}. Try again, or ${words.instead}.`;
    }
  }
}

/**
 * Posts to this service with a form's token, and returns the answer's JSON. Throws `Failure`.
 * @param {string} path
 * @param {HTMLFormElement} form
 * @param {object} [body] becomes JSON
 * @param {AbortSignal} [signal] ends the request, and then no cookie of its answer is stored
 */
export async function post(path, form, body, signal) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  setTimeout(abort, SERVER_MS);
  signal?.addEventListener("abort", abort, { once: true });
  let answer;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: {
        Accept: "application/json",
        ...(body && { "Content-Type": "application/json" }),
        "X-CSRFToken": form.elements.csrfmiddlewaretoken.value,
      },
      body: body && JSON.stringify(body),
      cache: "no-store",
      signal: controller.signal,
    });
  } catch {
    throw new Failure("The browser can't reach this service. Check your connection, then try again.");
  }
  const content = await answer.json().catch(() => null);
  if (answer.ok && content) return content;
  throw new Failure(
    content?.error ?? `This service answered with error ${answer.status}. Try again in a moment.`, content?.code,
  );
}

/**
 * Writes sentences into a live region. The first says how far it is. `others` is the class of those behind it.
 * @param {HTMLElement} status
 * @param {string[]} sentences
 */
export function tell(status, sentences, { failed = false, done = false, others = "notice" } = {}) {
  status.replaceChildren(
    ...sentences.map((sentence, index) => {
      const paragraph = Object.assign(document.createElement("p"), { textContent: sentence });
      paragraph.className = index ? others : failed ? "error" : done ? "success" : "busy";
      return paragraph;
    }),
  );
}

/**
 * Fills a row of buttons. The first may be the main one.
 * @param {HTMLElement} actions
 * @param {[string, () => void][]} choices
 */
export function offer(actions, choices, { main = false } = {}) {
  actions.replaceChildren(
    ...choices.map(([text, act], index) => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      button.className = main && index === 0 ? "" : "secondary";
      button.addEventListener("click", act);
      return button;
    }),
  );
  actions.hidden = choices.length === 0;
}

/** Moves the focus, unless it is elsewhere on the page. @param {HTMLElement} area @param {HTMLElement | null} element */
export function lead(area, element) {
  const focused = document.activeElement;
  if (!focused || focused === document.body || area.contains(focused)) element?.focus();
}

/** Thrown where a person has ended what waits. */
export class Stopped extends Error {}

/** A promise, or `Stopped`. @template T @param {AbortSignal} signal @param {Promise<T>} promise @returns {Promise<T>} */
export function until(signal, promise) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(new Stopped());
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}
