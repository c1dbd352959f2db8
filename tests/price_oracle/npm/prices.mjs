// Run transactions by the rules of a fork, each on a new chain. Standard input has {fork, accounts, transactions}: the code
// of accounts by address, and transactions with `to`, `data` and `gas`. Standard output has the used gas of each, or null
// if it fails.
import { readFileSync } from 'node:fs'

import { createBlock } from '@ethereumjs/block'
import { Common, Mainnet } from '@ethereumjs/common'
import { createFeeMarket1559Tx } from '@ethereumjs/tx'
import {
  createAccount, createAddressFromPrivateKey, createAddressFromString, hexToBytes,
} from '@ethereumjs/util'
import { createVM, runTx } from '@ethereumjs/vm'

const KEY = hexToBytes(`0x${'11'.repeat(32)}`)
const { fork, accounts, transactions } = JSON.parse(readFileSync(0, 'utf-8'))
const common = new Common({ chain: Mainnet, hardfork: fork })
const sender = createAddressFromPrivateKey(KEY)

const used = async ({ to, data, gas }) => {
  const vm = await createVM({ common })
  await vm.stateManager.putAccount(sender, createAccount({ balance: 10n ** 24n }))
  for (const [address, code] of Object.entries(accounts)) {
    const account = createAddressFromString(address)
    await vm.stateManager.putAccount(account, createAccount({ nonce: 1n }))
    await vm.stateManager.putCode(account, hexToBytes(code))
  }
  const slot = fork === 'amsterdam' ? { slotNumber: 1n } : {}
  const header = { number: 1n, gasLimit: 200_000_000n, baseFeePerGas: 7n, timestamp: 2_000_000_000n, ...slot }
  const block = createBlock({ header }, { common, skipConsensusFormatValidation: true })
  const fields = { chainId: 1n, nonce: 0n, data, gasLimit: BigInt(gas), maxFeePerGas: 10n, maxPriorityFeePerGas: 1n }
  const target = to === 'self' ? sender : to ? createAddressFromString(to) : undefined
  const tx = createFeeMarket1559Tx({ ...fields, to: target }, { common }).sign(KEY)
  const options = { tx, block, skipHardForkValidation: true, skipBlockGasLimitValidation: true }
  const { totalGasSpent, execResult } = await runTx(vm, options)
  return execResult.exceptionError ? null : Number(totalGasSpent)
}

const results = []
for (const transaction of transactions) results.push(await used(transaction))
console.log(JSON.stringify(results))
