// One game: the board or the conversation, both private views beside each other, every token.
import { useEffect, useState } from "preact/hooks";
import { ask, go, html, likelihood, Link, Markup, number, signed, useAgain, useJson, useKeys, useQuery, useTitle, Waiting } from "/static/lib.js";
import { filtersOf } from "/static/games.js";
import { COLOURS, Tokens } from "/static/tokens.js";

const LONG = 1400; // characters of a prompt that are shown unasked

export const Board = ({ frames, at, onStep }) => {
  const frame = frames[at];
  return html`<div class="stage-row"><div class="stage"><${Markup} of=${frame.scene} /></div>
    <div><div class="controls" role="group" aria-label="Steps">${frames.map((other, i) => html`<button aria-current=${i === at ? "true" : undefined} onClick=${() => onStep(i)}>${other.label}</button>`)}</div>
    ${frame.note && html`<p class=${`note ${frame.mood}`}>${frame.note}</p>`}</div></div>`;
};

const Prompt = ({ turn, exact }) => {
  const text = exact && turn.prompt !== null ? turn.prompt : turn.shown;
  const [all, setAll] = useState(false);
  const cut = !all && text.length > LONG;
  return html`<pre class="saw">${cut ? `…${text.slice(-LONG)}` : text}</pre>${cut && html`<button class="plain" onClick=${() => setAll(true)}>Show all ${number(text.length)} characters</button>`}`;
};

const Turn = ({ turn, index, current, by, exact, pending, onPick }) => {
  const likely = turn.tokens.length && turn.tokens.every((token) => token.logprob !== null)
    ? turn.tokens.reduce((sum, token) => sum + token.logprob, 0) : null;
  const facts = [
    `turn ${index + 1}`, turn.stage, turn.tokens.length && `${number(turn.tokens.length)} token${turn.tokens.length > 1 ? "s" : ""}`,
    likely !== null && likelihood(likely), turn.advantage !== null && `advantage ${signed(turn.advantage)}`,
    turn.finish === "length" && turn.tokens.length > 1 && "cut off at the token limit", turn.learned ? "learned from" : "",
  ].filter(Boolean).join(" · ");
  return html`<article class=${`turn${current ? " current" : ""}`} id=${`turn-${index}`}>
    <button class="plain about" onClick=${onPick}>${facts}</button>
    <h5>Saw</h5><${Prompt} turn=${turn} exact=${exact} />
    <h5>Said</h5>${turn.tokens.length && !(pending && turn.tokens[0].text === null) ? html`<${Tokens} turn=${turn} by=${by} />`
      : html`<pre class="tokens">${turn.text || "Nothing."}</pre>`}</article>`;
};

const Diff = ({ diff }) => html`<details class="card" open><summary>${diff.from} → ${diff.to}</summary>
  <pre class="diff">${diff.rows.map(([sign, line]) => html`<span class=${{ "+": "added", "-": "removed" }[sign] || ""}>${`${sign} ${line}\n`}</span>`)}</pre></details>`;

const Rescore = ({ address, game }) => {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => { setFound(null); setError(""); }, [address]);
  const work = () => { setError(""); setFound({ busy: true }); ask(`${address}/rescore`, {}).then(setFound, (e) => { setFound(null); setError(e.message); }); };
  const again = found?.replay;
  return html`<section class="rescore"><h2>Re-score</h2>
    <p class="intro">Play these words again under today's rules and judge, and give credit by every kind, over the games of this iteration alone.</p>
    <button onClick=${work} disabled=${found?.busy}>${found?.busy ? "Scoring…" : "Re-score this game"}</button>
    ${error && html`<p class="problem" role="alert">${error}</p>`}
    ${again && html`<div class="card"><p class="replayed">${again.error ? `It cannot be played again here: ${again.error}`
      : again.void ? `Void today: ${again.void}`
      : `${again.same ? "The same as on record" : "Not what is on record"}: ${Object.entries(again.rewards).map(([seat, reward]) => `${seat} ${signed(reward)}`).join(", ")}`}
      ${again.verdicts?.length > 0 && html` · ${again.verdicts.map((v) => v.kind || v.status).join(", ")}`}</p>
      ${Object.keys(found.credits).length > 0 && html`<div class="scroll"><table class="results"><thead><tr><th>Credit</th>${game.turns.map((turn, i) => html`<th class="num">${turn.seat} ${i + 1}</th>`)}</tr></thead>
        <tbody><tr><th>On record</th>${game.turns.map((turn) => html`<td class="num">${turn.advantage === null ? "–" : signed(turn.advantage)}</td>`)}</tr>
        ${Object.entries(found.credits).map(([kind, values]) => html`<tr><th>${kind.replaceAll("_", " ")}</th>${values.map((value) => html`<td class="num">${signed(value)}</td>`)}</tr>`)}</tbody></table></div>`}</div>`}</section>`;
};

export const Details = ({ game }) => html`${game.verdicts.length > 0 && html`<section><h2>Verdicts</h2><ul class="verdicts card">${game.verdicts.map((v) =>
    html`<li class=${v.status}><b>${v.status}</b> ${v.kind} <span class="reward">${v.seconds ? `${number(v.seconds)} s` : ""}</span><pre>${v.detail}</pre></li>`)}</ul></section>`}
  ${game.diffs.length > 0 && html`<section><h2>Differences</h2>${game.diffs.map((diff) => html`<${Diff} diff=${diff} />`)}</section>`}
  <section><h2>On record</h2>${[["Facts", game.facts], ["Task", game.task]].map(([title, data]) => Object.keys(data).length > 0 && html`<details class="card"><summary>${title}</summary>
    <dl class="facts-list">${Object.entries(title === "Task" ? { id: data.id, ...data.data } : data).map(([key, value]) => html`<div><dt>${key}</dt><dd><pre>${typeof value === "string" ? value : JSON.stringify(value, null, 1)}</pre></dd></div>`)}</dl></details>`)}</section>`;

export const Conversation = ({ game, at, by, exact, onTurn }) => html`<div class="views" style=${`--seats:${game.seats.length}`}>${game.seats.map((seat) => html`<section class=${`view ${seat.colour}`} aria-label=${seat.name}>
  <h3><b>${seat.name}</b> ${seat.policy} ${seat.reward !== null && seat.reward !== undefined && html`<span class="reward">${signed(seat.reward)}</span>`}</h3>
  ${game.turns.map((turn, i) => turn.seat === seat.seat && html`<${Turn} turn=${turn} index=${i} current=${at === i} by=${by} exact=${exact} pending=${game.pending} onPick=${() => onTurn(i)} />`)}
  ${game.turns.every((turn) => turn.seat !== seat.seat) && html`<p class="empty">Did not speak.</p>`}</section>`)}</div>`;

export const Game = ({ run, file, number: which }) => {
  const [query, change] = useQuery();
  const filters = filtersOf(query);
  const address = `/api/runs/${run}/games/${file}/${which}`;
  const { data: game, error, fresh, reload } = useJson(`${address}${filters && `?${filters}`}`);
  useAgain(game?.pending, game, reload);
  const step = game && game.frames.length ? Math.min(game.frames.length - 1, Number(query.step ?? game.frames.length - 1)) : Number(query.step ?? 0);
  const most = game ? (game.frames.length || game.turns.length) - 1 : 0;
  const by = query.colour || "probability";
  const exact = query.prompt === "exact";
  const onStep = (i) => change({ step: Math.max(0, Math.min(most, i)) }, { replace: true });
  const other = (where) => () => { const to = fresh && game.neighbours[where]; if (to) go(`/run/${run}/games/${to.file}/${to.number}?${new URLSearchParams({ ...Object.fromEntries(new URLSearchParams(filters)), ...(query.colour && { colour: by }), ...(exact && { prompt: "exact" }) })}`); };
  const list = () => go(`/run/${run}/games${filters && `?${filters}`}`);
  useKeys({ ArrowLeft: () => onStep(step - 1), ArrowRight: () => onStep(step + 1), n: other("after"), p: other("before"), Escape: list });
  useTitle(game ? `${game.title}, ${game.ending.words}` : "Game");
  if (!game) return html`<${Waiting} error=${error} />`;
  const current = game.frames.length ? game.frames[step].turn : step;
  const onTurn = (i) => onStep(game.frames.length ? game.frames.findIndex((frame) => frame.turn === i) : i);
  return html`<header class="page game-head" aria-busy=${fresh ? undefined : "true"}><p class="tag">${/^\d+$/.test(file) ? `Iteration ${number(Number(file))}` : "Evaluation"}, game ${number(which + 1)}</p>
      <h1>${game.title}</h1><p class=${`ended ${game.ending.kind}`}>${game.ending.words}</p></header>
    <nav class="pages" aria-label="Games"><button disabled=${!game.neighbours.before} onClick=${other("before")}>← Previous <kbd>p</kbd></button>
      <${Link} to=${`/run/${run}/games${filters && `?${filters}`}`}>All ${filters ? "filtered " : ""}games<//>
      ${game.group_size > 1 && html`<${Link} to=${`/run/${run}/group/${file}?group=${encodeURIComponent(game.group)}`}>${number(game.group_size)} games on this task<//>`}
      <button disabled=${!game.neighbours.after} onClick=${other("after")}><kbd>n</kbd> Next →</button></nav>
    ${game.frames.length > 0 && html`<div class="card"><${Board} frames=${game.frames} at=${step} onStep=${onStep} /></div>`}
    <div class="tools"><label><span>Colour of tokens</span><select name="colour" value=${by} onChange=${(event) => change({ colour: event.target.value }, { replace: true })}>
        ${COLOURS.map(([key, title]) => html`<option value=${key}>${title}</option>`)}</select></label>
      <label class="check"><input type="checkbox" checked=${exact} onChange=${(event) => change({ prompt: event.target.checked ? "exact" : "" }, { replace: true })} /> Prompts with the template's tokens</label>
      <small class="hint">← → step, n and p next and previous game, Esc all games</small></div>
    <${Conversation} game=${game} at=${current} by=${by} exact=${exact} onTurn=${onTurn} />
    <${Details} game=${game} /><${Rescore} address=${address} game=${game} />`;
};
