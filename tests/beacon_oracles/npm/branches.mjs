// Computes branches by Lodestar's types, of what executable_specs.py has written into a folder: LODESTAR_PRESET=minimal
// node branches.mjs FOLDER. Prints JSON.

import { readFileSync } from "node:fs";
import { ProofType, createProof } from "@chainsafe/persistent-merkle-tree";
import { ssz } from "@lodestar/types";

const folder = process.argv[2];
const preset = process.env.LODESTAR_PRESET;
const told = JSON.parse(readFileSync(`${folder}/worlds.json`));
const blockHash = ["body", "executionPayload", "blockHash"];
const parentBlockHash = ["body", "signedExecutionPayloadBid", "message", "parentBlockHash"];
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const file = (name) => readFileSync(`${folder}/${preset}-${name}.ssz`);

function read(type, encoded) {
  const bytes = typeof encoded === "string" ? Buffer.from(encoded, "hex") : encoded;
  return { type, node: type.deserializeToViewDU(bytes).node };
}

// The leaf, index and siblings of a path through several objects, from the top down.
function branch(...parts) {
  let index = 1n;
  let nodes = [];
  let leaf;
  for (const [{ type, node }, path] of parts) {
    const { gindex } = type.getPathInfo(path);
    const proof = createProof(node, { type: ProofType.single, gindex });
    const depth = BigInt(gindex.toString(2).length - 1);
    index = (index << depth) | (gindex ^ (1n << depth));
    nodes = [...proof.witnesses.map(hex), ...nodes];
    leaf = hex(proof.leaf);
  }
  return { root: hex(parts[0][0].node.root), index: String(index), nodes, leaf };
}

// Down towards a generalized index, as far as there are nodes.
function walk({ node }, index) {
  let reached = 1n;
  for (const bit of index.toString(2).slice(1)) {
    if (node.isLeaf()) break;
    reached = (reached << 1n) | BigInt(bit);
    node = bit === "1" ? node.right : node.left;
  }
  return { reached: String(reached), node: hex(node.root), isLeaf: node.isLeaf() };
}

const { blocks, anchors, old, recent, forks, slots_per_period: period } = told.worlds.find((world) => world.preset === preset);
const block = new Map(blocks.map((one) => [one.slot, read(ssz[one.fork].BeaconBlock, one.encoded)]));
const anchor = new Map(
  anchors.map((one) => [
    one.slot,
    [read(ssz[one.fork].BeaconBlock, one.encoded), read(ssz[one.fork].BeaconState, file(`state-${one.slot}`))],
  ]),
);
const hashPath = (slot) => (slot < forks.gloas ? blockHash : parentBlockHash);
const batch = [...Array(9).keys()].map((number) => read(ssz.phase0.HistoricalBatch, file(`batch-${number}`)));

const gloas = told.gloas.find((one) => one.preset === preset);
const gloasBlock = read(ssz.gloas.BeaconBlock, gloas.encoded);
const gloasState = read(ssz.gloas.BeaconState, file("gloas-state"));
const bid = (name) => ssz.gloas.BeaconBlock.getPathInfo(["body", "signedExecutionPayloadBid", "message", name]).gindex;

const said = {
  blocks: [...block].map(([slot, one]) => ({ slot, ...branch([one, hashPath(slot)]) })),
  anchors: [...anchor].map(([slot, [top, state]]) => ({
    slot,
    stateSummaries: branch([state, ["historicalSummaries"]]),
    stateBlockRoots: branch([state, ["blockRoots"]]),
    historicalRoots: branch([top, ["stateRoot"]], [state, ["historicalRoots"]]),
  })),
  old: old.map(({ slot, anchor: from }) => {
    const [top, state] = anchor.get(from);
    const number = Math.floor(slot / period);
    // A summary's root is that of the batch, which has the same two parts.
    return {
      slot,
      anchor: from,
      ...branch(
        [top, ["stateRoot"]],
        [state, ["historicalSummaries", number - forks.capella / period]],
        [batch[number], ["blockRoots", slot % period]],
        [block.get(slot), hashPath(slot)],
      ),
    };
  }),
  recent: recent.map(({ slot, anchor: from }) => {
    const [top, state] = anchor.get(from);
    const path = [
      [top, ["stateRoot"]],
      [state, ["blockRoots", slot % period]],
      [block.get(slot), hashPath(slot)],
    ];
    return { slot, anchor: from, ...branch(...path) };
  }),
  gloas: {
    root: hex(gloasBlock.node.root),
    blockHashes: Object.fromEntries(
      Object.entries(gloas.block_hashes).map(([fork, { index }]) => [fork, walk(gloasBlock, BigInt(index))]),
    ),
    listLength: walk(gloasState, BigInt(gloas.list_length.index)),
    firstSummary: walk(gloasState, BigInt(gloas.first_summary.index)),
    bid: { block_hash: Number(bid("blockHash")), parent_block_hash: Number(bid("parentBlockHash")) },
  },
};
process.stdout.write(JSON.stringify(said));
