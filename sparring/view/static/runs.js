// The list of runs: how each stands; sort, filter, tick to compare.
import { useEffect } from "preact/hooks";
import { aboutRun, ago, go, html, Link, listed, number, percent, unlisted, useJson, useKeys, useQuery, useTitle, Waiting } from "/static/lib.js";

const COLUMNS = [
  ["name", "Run"], ["status", "Status"], ["changed", "Changed", "num"], ["iteration", "Iterations", "num"],
  ["score", "Score", "num"], ["invalid", "Invalid", "num"], ["void", "Void", "num"],
  ["rollbacks", "Rolled back", "num"], ["split", "Time"],
];
const PARTS = [["play", "Playing"], ["learn", "Learning"], ["judge", "Judging"], ["evaluate", "Evaluating"], ["rest", "Everything else"]];

const compare = (key, down) => (a, b) => {
  const [x, y] = [a[key], b[key]];
  if (x === null || x === undefined) return 1;
  if (y === null || y === undefined) return -1;
  const order = typeof x === "string" ? x.localeCompare(y) : x - y;
  return down ? -order : order;
};

const Split = ({ run }) => {
  const parts = PARTS.filter(([key]) => run.split[key] > 0.005);
  if (!parts.length) return "–";
  const words = parts.map(([key, name]) => `${name} ${percent(run.split[key])}`).join(", ");
  const model = (run.split.play || 0) + (run.split.learn || 0);
  return html`<span title=${words}><span class="bar split" role="img" aria-label=${words}>${parts.map(([key]) =>
    html`<i class=${`part-${key}`} style=${`width:${100 * run.split[key]}%`}></i>`)}</span>
    <small>${run.device === "GPU" ? "GPU" : "model"} ${percent(model)}</small></span>`;
};

export const Runs = () => {
  const [query, change] = useQuery();
  const { data, error, reload } = useJson("/api/runs");
  useTitle("Runs");
  useEffect(() => {
    const timer = setInterval(reload, 5000);
    return () => clearInterval(timer);
  }, [reload]);
  const ticked = unlisted(query.tick);
  const together = () => ticked.length && go(`/compare?runs=${encodeURIComponent(listed(ticked)).replaceAll("%2C", ",")}`);
  useKeys({ c: together });
  if (!data) return html`<${Waiting} error=${error} />`;
  const [sort, down] = query.sort ? [query.sort.replace("-", ""), query.sort.startsWith("-")] : ["changed", true];
  const wanted = (query.filter || "").toLowerCase();
  const rows = data.runs
    .filter((run) => `${run.name} ${run.recipe} ${run.policy} ${run.status}`.toLowerCase().includes(wanted))
    .sort(compare(sort, down));
  const tick = (id) => change({ tick: listed(ticked.includes(id) ? ticked.filter((t) => t !== id) : [...ticked, id]) }, { replace: true });
  return html`<header class="page"><h1>Runs</h1>
    <form class="tools" onSubmit=${(event) => event.preventDefault()}>
      <label><span>Filter</span><input type="search" value=${query.filter || ""} placeholder="name, recipe, policy, status" size="26"
        onInput=${(event) => change({ filter: event.target.value }, { replace: true })} /></label>
      <button type="button" disabled=${!ticked.length} onClick=${together}>Compare ${ticked.length || ""}</button>
    </form></header>
  ${rows.length ? html`<div class="scroll card flush"><table class="list"><thead><tr><th class="tick"><span class="hidden">Compare</span></th>
    ${COLUMNS.map(([key, title, kind]) => html`<th class=${kind} aria-sort=${key === sort ? (down ? "descending" : "ascending") : undefined}>
      ${key === "split" ? title : html`<button class="plain" onClick=${() => change({ sort: key === sort && !down ? `-${key}` : key }, { replace: true })}>${title}${key === sort ? (down ? " ↓" : " ↑") : ""}</button>`}</th>`)}
    </tr></thead><tbody>${rows.map((run) => html`<tr key=${run.id}>
      <td class="tick"><input type="checkbox" aria-label=${`Compare ${run.name}`} checked=${ticked.includes(run.id)} onChange=${() => tick(run.id)} /></td>
      <th class="run"><${Link} to=${`/run/${encodeURIComponent(run.id)}`}>${run.id}<//><small>${aboutRun(run).join(", ")}</small></th>
      <td><span class=${`status ${run.status.replace(" ", "-")}`} title=${run.reason}>${run.status}</span></td>
      <td class="num">${ago(run.changed)}</td>
      <td class="num">${run.iteration === null ? "–" : number(run.iteration)}${run.iterations ? html`<small> of ${number(run.iterations)}</small>` : ""}</td>
      <td class="num">${number(run.score)}</td><td class="num">${percent(run.invalid)}</td>
      <td class=${`num${run.void ? " alarm-text" : ""}`}>${percent(run.void)}</td>
      <td class=${`num${run.rollbacks ? " alarm-text" : ""}`}>${run.rollbacks}</td><td><${Split} run=${run} /></td>
    </tr>`)}</tbody></table></div>`
    : html`<p class="empty">${data.runs.length ? "No run passes the filter." : `There are no runs in ${data.folders.join(", ")} yet.`}</p>`}`;
};
