// The games on one task side by side: same problem, other words, other rewards.
import { html, Link, Markup, number, signed, useAgain, useJson, useQuery, useTitle, Waiting } from "/static/lib.js";
import { Tokens, COLOURS } from "/static/tokens.js";

const Column = ({ game, run, by }) => html`<article class="card column">
  <header><${Link} to=${`/run/${run}/games/${game.file}/${game.number}`}>Game ${number(game.number + 1)}<//><p class=${`ended ${game.ending.kind}`}>${game.ending.words}</p></header>
  ${game.frames.length > 0 && html`<${Markup} class="stage" of=${game.frames.at(-1).scene} />`}
  <ul class="seats">${game.seats.map((seat) => html`<li class=${seat.colour}><b>${seat.name}</b> ${seat.policy} <span class="reward">${seat.reward === null || seat.reward === undefined ? "" : signed(seat.reward)}</span></li>`)}</ul>
  ${game.turns.map((turn) => html`<div class=${game.seats.find((seat) => seat.seat === turn.seat).colour}><h5><b>${turn.seat}</b>${turn.advantage !== null ? ` · advantage ${signed(turn.advantage)}` : ""}</h5>
    ${turn.tokens.length && !(game.pending && turn.tokens[0].text === null) ? html`<${Tokens} turn=${turn} by=${by} />` : html`<pre class="tokens">${turn.text}</pre>`}</div>`)}
  ${game.verdicts.map((v) => html`<p class="verdicts"><span class=${v.status}><b>${v.status}</b></span> ${v.kind}</p>`)}</article>`;

export const Group = ({ run, file }) => {
  const [query, change] = useQuery();
  const { data, error, reload } = useJson(`/api/runs/${run}/group/${file}?group=${encodeURIComponent(query.group || "")}`);
  useAgain(data?.games.some(({ pending }) => pending), data, reload);
  const by = query.colour || "advantage";
  useTitle("Games on one task");
  if (!data) return html`<${Waiting} error=${error} />`;
  const asked = data.games[0]?.turns[0]?.shown;
  return html`<header class="page"><h1>Games on one task</h1></header>
    ${asked && html`<pre class="asked">${asked}</pre>`}
    <div class="tools"><label><span>Colour of tokens</span><select value=${by} onChange=${(event) => change({ colour: event.target.value }, { replace: true })}>${COLOURS.map(([key, title]) => html`<option value=${key}>${title}</option>`)}</select></label>
      <small class="hint">${number(data.games.length)} of ${number(data.count)} games.</small></div>
    <div class="columns">${data.games.map((game) => html`<${Column} key=${game.number} game=${game} run=${run} by=${by} />`)}</div>`;
};
