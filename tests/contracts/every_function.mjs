// Call each function of each ABI of the package by its name, with ethers and with viem, and compare the answers.
// node every_function.mjs URL ADDRESSES. ADDRESSES is JSON: the address of each contract, by its name. Prints JSON: the
// functions that were called.
import { readFileSync } from "node:fs";

import { Contract, JsonRpcProvider } from "ethers";
import { createPublicClient, decodeFunctionResult, encodeFunctionData, http } from "viem";

const [url, addresses] = [process.argv[2], JSON.parse(process.argv[3])];
const provider = new JsonRpcProvider(url);
const chain = createPublicClient({ transport: http(url) });

function argument({ type, components }) {
  if (type.endsWith("[]")) return [];
  if (type === "tuple") return components.map(argument);
  if (type === "address") return "0x00000000000000000000000000000000000000aa";
  if (type === "bytes") return "0x";
  if (type === "bool") return false;
  if (type === "string") return "";
  if (type.startsWith("bytes")) return `0x${"00".repeat(Number(type.slice(5)))}`;
  return 0;
}

const called = [];
for (const [name, address] of Object.entries(addresses)) {
  const abi = JSON.parse(readFileSync(`client/solidity/abi/${name}.json`, "utf8"));
  const contract = new Contract(address, abi, provider);
  for (const { inputs, name: functionName } of abi.filter(({ type }) => type === "function")) {
    const args = inputs.map(argument);
    const data = encodeFunctionData({ abi, functionName, args });
    // Both throw if the name is ambiguous, before they ask the node.
    const asked = (await contract.getFunction(functionName).populateTransaction(...args)).data;
    if (asked !== data) throw new Error(`${name}.${functionName}: ${asked} and ${data}`);
    let answer;
    try {
      answer = (await chain.call({ to: address, data })).data;
    } catch {
      // The contract refuses these arguments.
      await contract.getFunction(functionName).staticCall(...args).then(
        () => { throw new Error(`${name}.${functionName} reverts for viem alone`); },
        (error) => { if (error.code !== "CALL_EXCEPTION") throw error; },
      );
      called.push(`${name}.${functionName}`);
      continue;
    }
    const theirs = await contract.getFunction(functionName).staticCallResult(...args);
    const ours = decodeFunctionResult({ abi, functionName, data: answer ?? "0x" });
    const text = (value) => JSON.stringify(value, (_, each) => (["bigint", "number"].includes(typeof each) ? `${each}` : each)).toLowerCase();
    const one = theirs.length === 1 ? theirs[0] : theirs.toArray(true);
    if (theirs.length && text(one) !== text(ours)) throw new Error(`${name}.${functionName}: ${text(one)} and ${text(ours)}`);
    called.push(`${name}.${functionName}`);
  }
}
console.log(JSON.stringify(called));
