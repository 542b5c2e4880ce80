// A program that uses the types that openapi-typescript makes of openapi.yaml, as a stranger would write it. It is only
// compiled (see checks/contract/clients): types are all that this generator gives.
import type { components, paths } from "./schema";

type Json<Answer> = Answer extends { content: { "application/json": infer Body } } ? Body : never;
type Get<Path extends keyof paths> = paths[Path] extends { get: infer Operation } ? Operation : never;
type Body<Path extends keyof paths> = Get<Path> extends { responses: { 200: infer Answer } } ? Json<Answer> : never;

type Overview = Body<"/api/v1/market/overview">;
type CompanyPage = Body<"/api/v1/companies">;
type CompanyQuery = NonNullable<paths["/api/v1/companies"]["get"]["parameters"]["query"]>;
type Registered = Json<paths["/api/v1/plans/register"]["post"]["responses"][201]>;

async function read<Path extends keyof paths>(base: string, path: Path, query = "", key = ""): Promise<Body<Path>> {
  const answer = await fetch(`${base}${path}${query}`, { headers: key ? { "X-API-Key": key } : {} });
  if (answer.ok) return answer.json();
  const problem: components["schemas"]["Problem"] = await answer.json();
  throw new Error(`${problem.error}: ${problem.message} (${problem.request_id})`);
}

export async function overviewLines(base: string): Promise<string[]> {
  const overview: Overview = await read(base, "/api/v1/market/overview");
  const line = ({ series, date, value, unit }: Overview["selic"]) => `${series.name} on ${date}: ${value} ${unit}`;
  const pair: string = overview.fx.pair;
  const buy: number | string = overview.fx.buy;
  return [line(overview.selic), line(overview.cdi), line(overview.ipca), `${pair}: ${buy} to ${overview.fx.sell}`];
}

export async function* allCompanies(base: string, key: string): AsyncGenerator<CompanyPage["data"][number]> {
  for (let offset = 0, total = 1; offset < total; ) {
    const query: CompanyQuery = { limit: 100, offset };
    const page = await read(base, "/api/v1/companies", `?limit=${query.limit}&offset=${query.offset}`, key);
    if (page.data.length === 0) return;
    yield* page.data;
    offset += page.data.length;
    total = page.total;
  }
}

export const planOf = (registered: Registered): "free" | "bronze" | "gold" | "platinum" => registered.plan;

// What the file does not say must not pass either; types that let everything through would prove nothing.
// @ts-expect-error: there is no such indicator
export const unknownIndicator = (overview: Overview) => overview.bitcoin;
// @ts-expect-error: the registry does not always give the day
export const dayOf = (company: components["schemas"]["Company"]): string => company.registered_on;
// @ts-expect-error: a limit is a number
export const wordyLimit: CompanyQuery = { limit: "many" };
