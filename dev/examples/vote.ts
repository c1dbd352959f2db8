// The script of a page whose visitor votes by a proof: docs/using/typescript.md.
import {
  BaseError,
  ContractFunctionRevertedError,
  createPublicClient,
  createWalletClient,
  custom,
  defineChain,
  type EIP1193Provider,
  encodeAbiParameters,
  fallback,
  http,
  keccak256,
  parseAbi,
  parseAbiParameters,
  size,
  toRlp,
} from "viem";

const button = document.querySelector<HTMLButtonElement>("#vote")!;
const outcome = document.querySelector<HTMLOutputElement>("#outcome")!;
const { contract, node } = button.dataset;
const { ethereum } = window as unknown as { ethereum: EIP1193Provider };

// The chain of the contract. Your page names its own, by `viem/chains`.
const chain = defineChain({
  id: 31337,
  name: "Development chain",
  nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: [] } },
});
const wallet = createWalletClient({ chain, transport: custom(ethereum) });
const client = createPublicClient({ chain, transport: custom(ethereum) });
const votes = {
  address: contract as `0x${string}`,
  abi: parseAbi([
    "function sourceChainId() view returns (uint256)",
    "function token() view returns (address)",
    "function balancesSlot() view returns (uint256)",
    "function snapshotBlock() view returns (uint256)",
    "function vote(bool support, bytes proof)",
    "error HasVoted(address voter)",
    "error HoldsNothing(address voter)",
    "error InvalidProof()",
  ]),
};

async function vote(support: boolean) {
  const [account] = await wallet.requestAddresses();
  await wallet.switchChain({ id: chain.id });
  const [source, token, balancesSlot, blockNumber] = await Promise.all([
    client.readContract({ ...votes, functionName: "sourceChainId" }),
    client.readContract({ ...votes, functionName: "token" }),
    client.readContract({ ...votes, functionName: "balancesSlot" }),
    client.readContract({ ...votes, functionName: "snapshotBlock" }),
  ]);

  // Prove. A mapping keeps a key's value at the hash of the key and the mapping's own slot.
  const slot = keccak256(encodeAbiParameters(parseAbiParameters("address, uint256"), [account, balancesSlot]));
  const isHere = source === BigInt(chain.id);
  const transport = isHere ? fallback([custom(ethereum), http(node)]) : http(node);
  const sourceClient = createPublicClient({ transport });
  const { storageProof } = await sourceClient.getProof({ address: token, storageKeys: [slot], blockNumber });

  // Encode. A node behind the root that has less than 32 bytes is in the node above already.
  const nodes = storageProof[0].proof.filter((bytes, depth) => depth === 0 || size(bytes) >= 32);
  const proof = toRlp(nodes);

  // Simulate, then send. The contract refuses a wrong proof in the simulation, which costs nothing.
  const call = { ...votes, functionName: "vote", args: [support, proof], account } as const;
  const { request } = await client.simulateContract(call);
  const hash = await wallet.writeContract(request);
  const receipt = await client.waitForTransactionReceipt({ hash });
  if (receipt.status !== "success") throw new Error(`Transaction ${hash} failed.`);
}

function reason(error: unknown) {
  if (!(error instanceof BaseError)) return String(error);
  const revert = error.walk((cause) => cause instanceof ContractFunctionRevertedError);
  if (!(revert instanceof ContractFunctionRevertedError)) return `${error.shortMessage} ${error.details}`;
  return revert.reason ?? revert.data?.errorName ?? revert.shortMessage;
}

button.addEventListener("click", async () => {
  button.disabled = true;
  outcome.textContent = "Answer your wallet.";
  try {
    await vote(true);
    outcome.textContent = "Your vote is counted.";
  } catch (error) {
    outcome.textContent = `Your vote isn't counted: ${reason(error)}`;
  } finally {
    button.disabled = false;
  }
});
