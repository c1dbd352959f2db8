// A wallet as a browser extension injects it: an EIP-1193 provider, announced by EIP-6963. `walletSigns` is exposed by
// the test and signs with a real key, `walletAnswers` sends and asks a real chain; `walletState` says how the wallet behaves,
// as the test has set it.
(() => {
  const listeners = {};

  function refuse(code, message, data) {
    return Object.assign(new Error(message), { code, data });
  }

  const provider = {
    isTestWallet: true,
    on(event, listener) { (listeners[event] ??= []).push(listener); },
    removeListener(event, listener) { listeners[event] = (listeners[event] ?? []).filter((one) => one !== listener); },
    async request({ method, params }) {
      const state = await window.walletState(method);
      if (method === window.heldMethod) await new Promise((resolve) => { window.approve = resolve; window.isHeld(); });
      if (state.refuses[method]) throw refuse(...state.refuses[method]);
      switch (method) {
        case "eth_requestAccounts":
        case "eth_accounts":
          return state.accounts;
        case "eth_chainId":
          return state.chain_id;
        case "wallet_switchEthereumChain":
          await window.walletSwitches(params[0].chainId);
          return null;
        case "personal_sign":
          return window.walletSigns(params[0], params[1]);
        default: {
          if (state.holds && /send/i.test(method)) {
            await window.walletHolds(method, params);
            return new Promise(() => {});
          }
          const answer = await window.walletAnswers(method, params ?? []);
          if (answer.error) throw refuse(...answer.error);
          if (state.loses_answers && /send/i.test(method)) return new Promise(() => {});
          return answer.result;
        }
      }
    },
  };

  const name = "Test Wallet";
  window.ethereum = provider;
  const icon = "data:image/svg+xml," + encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="8" height="8" rx="2" fill="#6a5acd"/></svg>',
  );
  const info = Object.freeze({ uuid: crypto.randomUUID?.() ?? name, name, icon, rdns: "example.wallet" });
  const announce = () => window.dispatchEvent(
    new CustomEvent("eip6963:announceProvider", { detail: Object.freeze({ info, provider }) }),
  );
  window.addEventListener("eip6963:requestProvider", announce);
  announce();
})();
