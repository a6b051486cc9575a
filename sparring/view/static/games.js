// Every game of a run: filters and search in the address, a page at a time.
import { useEffect, useRef } from "preact/hooks";
import { html, Link, number, seatName, signed, useJson, useKeys, useQuery, useTitle, Waiting, go } from "/static/lib.js";

export const FILTERS = ["iteration", "game", "opponent", "seat", "outcome", "invalid", "void", "verdict", "least", "most", "search", "group"];

// The filters of an address alone, as a query, for links to a game and back.
export const filtersOf = (query) => new URLSearchParams(FILTERS.filter((key) => query[key]).map((key) => [key, query[key]])).toString();

const Choice = ({ name, title, options, query, change, words = (x) => x }) => Object.keys(options).length > 0 && html`<label><span>${title}</span>
  <select name=${name} value=${query[name] || ""} onChange=${(event) => change({ [name]: event.target.value, page: "" })}>
    <option value="">any</option>${Object.entries(options).map(([key, count]) => html`<option value=${key}>${words(key)} (${number(count)})</option>`)}</select></label>`;

const Field = ({ name, title, query, change, ...rest }) => {
  const wait = useRef(0);
  return html`<label><span>${title}</span><input name=${name} value=${query[name] || ""} ...${rest} onInput=${(event) => {
    clearTimeout(wait.current);
    const { value } = event.target;
    wait.current = setTimeout(() => change({ [name]: value, page: "" }, { replace: true }), 250);
  }} /></label>`;
};

const Rewards = ({ seats }) => html`<ul class="seats-line">${seats.map(([seat, policy, reward], i) =>
  html`<li class=${`seat-${i % 6}`}><b>${seatName(seat)}</b> ${policy} <span class="reward">${reward === null ? "" : signed(reward)}</span></li>`)}</ul>`;

export const Games = ({ run }) => {
  const [query, change] = useQuery();
  const filters = filtersOf(query);
  const page = Number(query.page || 0);
  const { data, error, reload } = useJson(`/api/runs/${run}/games?${filters}&page=${page}&facets=1`);
  useTitle(`Games of ${decodeURIComponent(run)}`);
  useEffect(() => {
    if (!data?.indexing) return undefined;
    const timer = setTimeout(reload, 700);
    return () => clearTimeout(timer);
  }, [data]);
  const turn = (by) => () => data && page + by >= 0 && page + by < data.pages && change({ page: page + by || "" });
  const first = () => data?.games.length && go(address(data.games[0]));
  const address = (game) => `/run/${run}/games/${game.file}/${game.number}${filters && `?${filters}`}`;
  useKeys({ ArrowLeft: turn(-1), ArrowRight: turn(1), o: first });
  if (!data) return html`<${Waiting} error=${error} />`;
  const facets = data.facets || {};
  const common = { query, change };
  return html`<header class="page"><h1>Games</h1></header>
    <form class="tools filters" onSubmit=${(event) => event.preventDefault()}>
      <${Field} name="search" title="Search" type="search" placeholder="words" ...${common} />
      <${Field} name="iteration" title="Iteration" placeholder=${Object.keys(facets.iteration || {})[0] || ""} size="8" ...${common} />
      <${Choice} name="game" title="Game" options=${facets.game || {}} ...${common} />
      <${Choice} name="opponent" title="At the table" options=${facets.opponent || {}} ...${common} />
      <${Choice} name="seat" title="Learner's seat" options=${facets.seat || {}} words=${seatName} ...${common} />
      <${Choice} name="outcome" title="Outcome" options=${facets.outcome || {}} ...${common} />
      <${Choice} name="verdict" title="Verdict" options=${facets.verdict || {}} ...${common} />
      ${["invalid", "void"].map((name) => html`<label><span>${name === "void" ? "Void" : "Invalid"}</span><select name=${name} value=${query[name] || ""} onChange=${(event) => change({ [name]: event.target.value, page: "" })}>
        ${["", "yes", "no"].map((value) => html`<option value=${value}>${value || "any"}</option>`)}</select></label>`)}
      <span class="range"><${Field} name="least" title="Reward from" type="number" step="any" ...${common} />
      <${Field} name="most" title="to" type="number" step="any" ...${common} /></span>
      ${filters && html`<button onClick=${() => change(Object.fromEntries([...FILTERS, "page"].map((key) => [key, ""])))}>Clear</button>`}
    </form>
    <p class="intro"><b class="count">${number(data.count)}</b> game${data.count === 1 ? "" : "s"}${query.group && html` of the group ${query.group}`}.
      ${data.indexing && html`<span aria-busy="true"> Reading: ${number(data.indexing.total - data.indexing.left)} of ${number(data.indexing.total)} files.</span>`}
      ${data.unreadable > 0 && html`<span class="alarm-text"> In ${number(data.unreadable)} file${data.unreadable === 1 ? "" : "s"} there is no game that this version can read.</span>`}</p>
    ${data.games.length > 0 && html`<div class="scroll card flush"><table class="list games"><thead><tr><th>Game</th><th>Players and rewards</th><th>Outcome</th><th class="num">Turns</th><th class="num">Tokens</th><th>Group</th></tr></thead>
      <tbody>${data.games.map((game) => html`<tr key=${`${game.file}/${game.number}`}>
        <th><${Link} to=${address(game)}>${game.iteration === null ? "Evaluation" : `Iteration ${number(game.iteration)}`}, ${number(game.number + 1)}<//><small>${game.title}</small></th>
        <td><${Rewards} seats=${game.seats} /></td>
        <td class=${game.void !== null ? "alarm-text" : game.invalid !== null ? "foul-text" : ""}>${game.outcome}${game.void !== null && html`<small>${game.void.slice(0, 120)}</small>`}</td>
        <td class="num">${number(game.turns)}</td><td class="num">${number(game.tokens)}</td>
        <td>${game.grp && html`<${Link} to=${`/run/${run}/group/${game.file}?group=${encodeURIComponent(game.grp)}`}>side by side<//>`}</td></tr>`)}</tbody></table></div>
    <nav class="pages" aria-label="Pages"><button disabled=${page < 1} onClick=${turn(-1)}>← Newer</button>
      <span>Page ${number(page + 1)} of ${number(data.pages)}</span><button disabled=${page + 1 >= data.pages} onClick=${turn(1)}>Older →</button></nav>`}`;
};
