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
// @ts-expect-error: there is no such property.
export const wrong: components["schemas"]["AccountRequest"] = { props: ["BALANCES"] };
