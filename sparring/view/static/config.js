// The config key by key, searchable, what differs from the recipe marked; the machine; the log.
import { breakable, html, number, show, useJson, useQuery, useTitle, Waiting } from "/static/lib.js";

export const Config = ({ run }) => {
  const [query, change] = useQuery();
  const { data, error } = useJson(`/api/runs/${run}/config`);
  useTitle(`Config of ${decodeURIComponent(run)}`);
  if (!data) return html`<${Waiting} error=${error} />`;
  const wanted = (query.search || "").toLowerCase();
  const rows = data.rows.filter((row) => (!query.differs || row.differs) && `${row.key} ${show(row.value)}`.toLowerCase().includes(wanted));
  const count = data.rows.filter((row) => row.differs).length;
  return html`<header class="page"><h1>Config</h1></header>
    <form class="tools" onSubmit=${(event) => event.preventDefault()}><label><span>Search</span><input type="search" name="search" value=${query.search || ""} placeholder="a key or a value" onInput=${(event) => change({ search: event.target.value }, { replace: true })} /></label>
      ${data.recipe && html`<label class="check"><input type="checkbox" checked=${Boolean(query.differs)} onChange=${(event) => change({ differs: event.target.checked ? "1" : "" }, { replace: true })} /> Only what differs from the recipe ${data.recipe} (${number(count)})</label>`}</form>
    ${rows.length ? html`<div class="scroll card flush"><table class="list config"><thead><tr><th>Key</th><th>Value</th><th>${data.recipe ? `Recipe ${data.recipe}` : ""}</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr class=${row.differs ? "differs" : ""}><th><code>${breakable(row.key)}</code></th><td><code>${show(row.value)}</code></td><td>${row.differs && html`<code>${show(row.recipe)}</code>`}</td></tr>`)}</tbody></table></div>`
      : html`<p class="empty">No key or value holds that.</p>`}
    ${data.machine.length > 0 && html`<section><h2>Machine</h2><dl class="card facts-list">${data.machine.map((fact) => html`<div><dt>${fact.name}</dt><dd>${fact.value}</dd></div>`)}</dl></section>`}
    ${data.log.length > 0 && html`<section><h2>What it printed</h2><details class="card"><summary>The last ${number(data.log.length)} lines</summary><pre>${data.log.join("\n")}</pre></details></section>`}`;
};
