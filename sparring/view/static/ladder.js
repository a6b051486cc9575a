// Checkpoints: ratings with intervals, who beats whom, closing results, commands to copy.
import { html, Copy, Link, Markup, number, percent, useJson, useTitle, Waiting } from "/static/lib.js";

const Payoff = ({ payoff }) => html`<section><h2>Who beats whom</h2><p class="intro">Points of the row against the column: 1 for a win, ½ for a draw, as a share of the games.</p>
  <div class="scroll card flush"><table class="list matrix"><thead><tr><th></th>${payoff.names.map((name) => html`<th class="num">${name}</th>`)}</tr></thead>
  <tbody>${payoff.rows.map((row, i) => html`<tr><th>${payoff.names[i]}</th>${row.map((cell) => {
    if (!cell || !cell[1]) return html`<td class="num">–</td>`;
    const share = cell[0] / cell[1];
    const colour = share >= 0.5 ? "var(--green)" : "var(--red)";
    return html`<td class="num" title=${`${number(cell[0])} of ${number(cell[1])} points`} style=${`background:color-mix(in srgb, ${colour} ${Math.round(60 * Math.abs(share - 0.5))}%, transparent)`}>${percent(share)}</td>`;
  })}</tr>`)}</tbody></table></div></section>`;

export const Ladder = ({ run }) => {
  const { data, error } = useJson(`/api/runs/${run}/ladder`);
  useTitle(`Checkpoints of ${decodeURIComponent(run)}`);
  if (!data) return html`<${Waiting} error=${error} />`;
  return html`<header class="page"><h1>Checkpoints</h1></header>
    ${data.figure && html`<section><h2>Ladder</h2><p class="intro">${data.intro} ${data.played}</p><${Markup} class="card scroll" of=${data.figure} /></section>`}
    ${data.payoff.names.length > 0 && html`<${Payoff} payoff=${data.payoff} />`}
    ${data.results && html`<section><h2>Closing evaluation</h2><${Markup} of=${data.results} /></section>`}
    <section><h2>On disk</h2>${data.checkpoints.length ? html`<div class="checkpoints">${data.checkpoints.map((one) => html`<details class="card" open=${one.best}>
      <summary><b>Iteration ${number(one.step)}</b>${one.best ? html` <span class="status done">best</span>` : ""} <span class="reward">${one.score === null || one.score === undefined ? "" : `score ${number(one.score)}`}</span></summary>
      <dl class="commands">${Object.entries(one.commands).map(([name, command]) => html`<div><dt>${name}</dt><dd><${Copy} text=${command} /></dd></div>`)}</dl>
      <p><${Link} to=${`/run/${run}/play?policy=${[one.step, ...one.policies.slice(0, 1)].join(":")}`}>Play against it here<//></p></details>`)}</div>` : html`<p class="empty">There is no checkpoint yet.</p>`}</section>`;
};
