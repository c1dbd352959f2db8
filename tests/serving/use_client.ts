import type { components, operations, paths } from "./api";

export const body: components["schemas"]["BatchRequest"] = {
  destinationChainId: "31337",
  fee: "0",
  data: { "31337": { "block:12": { accounts: { "0x00": { props: ["BALANCE"] } } } } },
};

type Answers = operations["get_batch_query"]["responses"];
export function words(answer: Answers[200]["content"]["application/json"]): (string | null)[] {
  return answer.queryList.flatMap((query) => query.facts.map((fact) => fact.word));
}
export const codeOf = (error: Answers[404]["content"]["application/json"]): string => error.code;
export type Waited = paths["/batch-query-status"]["get"]["parameters"]["query"]["wait"];
export const header: components["schemas"]["BlockRequest"]["header"] = ["BLOCK_ACCESS_LIST_HASH", "SLOT_NUMBER"];
// @ts-expect-error: there is no such property.
export const wrong: components["schemas"]["AccountRequest"] = { props: ["BALANCES"] };

type Found = operations["find_slots"]["responses"][200]["content"]["application/json"];
export const call: operations["find_slots"]["requestBody"]["content"]["application/json"] = {
  sourceChainId: "31337",
  contract: "0x00",
  signature: "balanceOf(address)",
  arguments: ["0x00"],
};
export const proving = (found: Found): typeof body => ({ ...body, data: found.batch.data });
export const stated = ({ slots }: Found): (string | null | undefined)[] => slots.map((slot) => slot.slotName?.call);
// @ts-expect-error: a slot's name has no such member.
export const unnamed = ({ slots }: Found) => slots[0].slotName?.signature;
