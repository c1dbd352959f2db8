// Has a wallet of the browser send the transactions that a batch lacks. It asks this service for them, shows the cost,
// sends them, and asks again until none is missing. The chain decides what is missing, so the page can be left and
// opened again at any time.

import { Note, Sender, pause } from "./sending.js";
import { Failure, Stopped, accountOf, chooseWallet, lead, offer, post, tell, until } from "./wallets.js";

/** @typedef {import("./wallets.js").Wallet} Wallet */

const OLD_MS = 60_000; // after this time, transactions and price are requested anew before sending
const BEHIND_MS = 2000, MOST_BEHIND = 8;

/** @type {HTMLElement | null} */
let area = null;
/** @type {HTMLButtonElement} */
let begin;
/** @type {HTMLElement} */
let list, status, actions;
/** @type {HTMLFormElement} */
let form;
/** @type {Note} */
let note;
/** The announcement at which transactions were counted. @type {string | null | undefined} */
let counted = null;

follow();
document.addEventListener("htmx:afterSettle", follow);

/** Takes over the page's form, and counts anew if the batch has changed. */
function follow() {
  const found = document.getElementById("sending");
  if (!found) return;
  if (found !== area) takeOver(found);
  const told = document.getElementById("batch")?.dataset.announcement;
  if (told === counted) return;
  counted = told;
  count();
}

/** A batch that was DONE and is rolled back has a new form. @param {HTMLElement} found */
function takeOver(found) {
  area = found;
  const ids = ["send", "wallets", "wallet-status", "wallet-actions", "left-to-send"];
  [begin, list, status, actions, form] = ids.map((id) => /** @type {any} */ (document.getElementById(id)));
  note = new Note(area.dataset.batch ?? "");
  begin.addEventListener("click", () => {
    begin.disabled = begin.hidden = true; // What it asks for has buttons of its own.
    // Two pages would get the same transactions and send them twice. Browsers have locks only on https and localhost.
    if (!navigator.locks) run();
    else navigator.locks.request(note.key, { ifAvailable: true }, (lock) =>
      lock ? run() : end(["Another page of this browser is already sending these transactions. Go on there."], { failed: true }));
  });
}

/** Shows the number of transactions on the button. If it is unknown, a click on the button shows why. */
async function count() {
  if (begin.disabled) return;
  try {
    const left = await post(form.action, form);
    const { length } = left.transactions;
    begin.textContent = length ? `Send ${inWords(length)}` : "Send with my wallet";
    document.getElementById("how-many")?.replaceChildren(length ? inWords(length) : "its transactions");
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
  }
}

async function run() {
  const controller = new AbortController();
  const stop = () => controller.abort();
  try {
    const wallet = await chooseWallet({ area, list, status, actions }, "Send", controller);
    if (!wallet) {
      throw new Failure(
        "There is no wallet in this browser. Install one, open this page in a wallet's browser, or send with bqs.",
      );
    }
    offer(actions, [["Stop", stop]]);
    await sendAll(wallet, controller);
  } catch (error) {
    if (error instanceof Stopped) {
      return end(["Stopped. Sent transactions count. When you go on, the page offers the missing ones."]);
    }
    if (!(error instanceof Failure)) console.warn(error);
    const sentence = error instanceof Failure ? error.message : "The wallet answered something unexpected. Try again.";
    end([sentence], { failed: true });
  }
}

/** @param {Wallet} wallet @param {AbortController} controller */
async function sendAll(wallet, controller) {
  const { signal } = controller;
  const say = (...sentences) => tell(status, sentences, { others: "hint" });
  say(`Waiting for ${wallet.name}. Open it and choose an account.`);
  const account = await until(signal, accountOf(wallet, { instead: "send with bqs" }));
  let sender;
  for (;;) {
    if (note.isOpen) {
      const chain = (await whatIsLeft(signal)).chain;
      sender ??= new Sender(wallet, account, chain, note, signal, say);
      await sender.choose();
      await settled(sender, controller);
    }
    const left = await whatIsLeft(signal);
    if (!left.transactions.length) return end(nothingLeft(left), { done: left.isComplete, others: "hint" });
    sender ??= new Sender(wallet, account, left.chain, note, signal, say);
    await sender.choose();
    if (await confirmed(left, await sender.waiting(), controller)) await sender.send(left.transactions, left.mostGas);
  }
}

/** The transactions that the batch lacks, at the block of the last one sent or later. @param {AbortSignal} signal */
async function whatIsLeft(signal) {
  tell(status, ["Asking the chains for missing facts."]);
  for (let tries = 1; ; tries += 1) {
    const left = await until(signal, post(form.action, form));
    const { block = 0, ...givenUp } = note.read();
    if (note.isOpen) return left;
    if (left.block === null || left.block >= block) {
      note.write(Object.keys(givenUp).length ? { block: 0, ...givenUp } : {});
      return left;
    }
    if (tries === MOST_BEHIND) {
      const seen = `The service has seen block ${left.block}, and what you sent is in block ${block}.`;
      throw new Failure(`${seen} Try again in a moment.`);
    }
    tell(status, [`Waiting until the service sees block ${block}.`]);
    await pause(BEHIND_MS, signal);
  }
}

/**
 * Waits for earlier transactions, unless the user chooses not to. The user must decline an unsent one in the wallet.
 * @param {Sender} sender
 * @param {AbortController} controller
 */
async function settled(sender, controller) {
  let isWanted = true;
  /** @type {boolean | undefined} */
  let wasUnsent;
  await new Promise((resolve, reject) => {
    const end = (write) => () => {
      isWanted = false;
      write();
      resolve(undefined);
    };
    const look = (isUnsent) => {
      if (isUnsent === wasUnsent) return;
      wasUnsent = isUnsent;
      if (isUnsent) {
        tell(status, ["Your wallet may still show an earlier request from this page. Decline that request in the wallet, then go on: " +
          "what is approved twice may be paid twice."]);
        offer(actions, [["It is declined, go on", end(() => note.giveUp())], ["Stop", () => controller.abort()]]);
      } else {
        const { wallet: other } = note.read();
        const by = other && other !== sender.wallet.name ? ` Only ${other} can tell: stop, and choose that wallet.` : "";
        tell(status, [`Waiting for earlier transactions from this browser.${by}`]);
        offer(actions, [["Stop", () => controller.abort()], ["Don't wait for it", end(() => note.write({}))]]);
      }
      lead(area, actions.querySelector("button"));
    };
    sender.settle(() => isWanted, look).then(resolve, reject);
  });
  offer(actions, [["Stop", () => controller.abort()]]);
}

/** Shows the cost and waits for the user's consent. Resolves to false if the shown price is too old by then. */
async function confirmed(left, waiting, controller) {
  const shownAt = Date.now();
  const many = inWords(left.transactions.length);
  const { name, currency } = left.chain;
  const more = left.isComplete ? [] : ["More follow when these are on the chain."];
  const pending = waiting > 0
    ? [`Your account has sent ${inWords(waiting)} that no block has yet. If that was for this batch, wait: what is ` +
       "proven twice is paid twice."]
    : [];
  tell(status, [
    `${many} on ${name}: ${left.gas.toLocaleString("en")} gas at most, ` +
      `${left.cost} ${currency} at the present price.`,
    ...more,
    ...pending,
  ], { others: pending.length ? "notice" : "hint" });
  await until(controller.signal, new Promise((resolve) => {
    offer(actions, [[`Send ${many}`, () => resolve(undefined)], ["Not now", () => controller.abort()]], { main: true });
    lead(area, actions.querySelector("button"));
  }));
  offer(actions, [["Stop", () => controller.abort()]]);
  return Date.now() - shownAt < OLD_MS;
}

function nothingLeft(left) {
  if (!left.isComplete) return ["There is nothing to send just now.", ...left.waits];
  return ["Nothing is missing: everything is on the chain. The batch is DONE when the service has read the facts from the chain."];
}

/** @param {number} count */
const inWords = (count) => (count === 1 ? "1 transaction" : `${count} transactions`);

/** @param {string[]} sentences @param {{failed?: boolean, done?: boolean, others?: string}} [how] */
function end(sentences, how) {
  offer(actions, []);
  tell(status, sentences, how);
  begin.disabled = begin.hidden = false;
  begin.textContent = "Send with my wallet";
  lead(area, begin);
}
