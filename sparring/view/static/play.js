// You against a policy: the board drawn, moves by click or key, its probabilities if you ask.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, html, Markup, percent, seatName, useJson, useQuery, useTitle, Waiting } from "/static/lib.js";
import { Board, Conversation } from "/static/game.js";

// Elements of a scene that are moves answer to a click and to Enter.
const Scene = ({ scene, onMove }) => {
  const node = useRef(null);
  useEffect(() => {
    const act = (event) => {
      const move = event.target.closest?.("[data-action]");
      if (!move || (event.type === "keydown" && !["Enter", " "].includes(event.key))) return;
      event.preventDefault();
      onMove(move.dataset.action);
    };
    const at = node.current;
    at.addEventListener("click", act);
    at.addEventListener("keydown", act);
    return () => { at.removeEventListener("click", act); at.removeEventListener("keydown", act); };
  }, [onMove]);
  return html`<div class="stage" ref=${node}><${Markup} of=${scene} /></div>`;
};

const LOST = ". You lose.";
const verdict = (seats, seat) => {
  const mine = seats.find((one) => one.seat === seat).reward;
  const best = Math.max(...seats.filter((one) => one.seat !== seat).map((one) => one.reward));
  return mine > best ? ". You win." : mine < best ? LOST : "";
};

const Over = ({ game, seat }) => {
  const [at, setAt] = useState(Math.max(0, game.frames.length - 1));
  const { words, kind } = game.ending;
  const result = kind === "void" ? "" : verdict(game.seats, seat);
  return html`<p class=${`ended ${result === LOST ? "draw" : kind}`} role="status">${words}${result}</p>
    ${game.frames.length > 0 && html`<div class="card"><${Board} frames=${game.frames} at=${at} onStep=${setAt} /></div>`}
    <${Conversation} game=${game} at=${game.frames[at]?.turn} by="probability" exact=${false} onTurn=${(i) => setAt(game.frames.findIndex((f) => f.turn === i))} />`;
};

export const Play = ({ run }) => {
  const [query, change] = useQuery();
  const { data, error } = useJson(`/api/runs/${run}/ladder`);
  const [state, setState] = useState(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const [hint, setHint] = useState(null);
  useTitle(`Play against ${decodeURIComponent(run)}`);
  if (!data) return html`<${Waiting} error=${error} />`;
  const send = (address, body) => {
    setBusy(true); setProblem(""); setHint(null);
    return ask(address, body).then(setState, (e) => setProblem(e.message)).finally(() => setBusy(false));
  };
  const game = query.game || data.games[0]?.name || "";
  const { seats = [], programs = [] } = data.games.find(({ name }) => name === game) || {};
  const marks = [...(data.checkpoints.some((one) => one.best) ? ["best"] : []), "last"].map((name) => [name, `${name} checkpoint`]);
  const learned = data.checkpoints[0]?.policies || []; // empty where one alone is meant
  const met = [...marks, ...data.checkpoints.map((one) => [one.step, `iteration ${one.step}`])].flatMap(([mark, title]) =>
    (learned.length ? learned.map((who) => [`${mark}:${who}`, `${title}, ${who}`]) : [[String(mark), title]]));
  const mine = query.seat || seats[0];
  const policy = query.policy || (met.find(([name]) => !name.endsWith(`:${mine}`)) || met[0])[0];
  const begin = () => { setState(null); send(`/api/runs/${run}/play`, { game, policy, ...(query.seat && { seat: query.seat }) }); };
  const move = (action) => !busy && send(`/api/play/${state.id}`, { action });
  const asked = state?.asked;
  return html`<header class="page"><h1>Play</h1></header>
    <form class="tools" onSubmit=${(event) => { event.preventDefault(); begin(); }}>
      <label><span>Game</span><select value=${game} onChange=${(event) => change({ game: event.target.value, seat: "" }, { replace: true })}>${data.games.map(({ name, title }) => html`<option value=${name}>${title}</option>`)}</select></label>
      <label><span>Against</span><select name="policy" value=${policy} onChange=${(event) => change({ policy: event.target.value }, { replace: true })}>
        ${met.map(([name, title]) => html`<option value=${name}>${title}</option>`)}
        ${programs.map((name) => html`<option value=${name}>${name} player</option>`)}</select></label>
      <label><span>Your seat</span><select name="seat" value=${mine} onChange=${(event) => change({ seat: event.target.value }, { replace: true })}>${seats.map((seat) => html`<option value=${seat}>${seatName(seat)}</option>`)}</select></label>
      <button type="submit" class="primary" disabled=${busy || !game}>${state ? "Begin again" : "Begin"}</button></form>
    ${!state && !busy && html`<p class="intro">You against a checkpoint of this run, or a program. You see what your seat sees; the rest when the game is over.</p>`}
    ${busy && html`<p class="empty" aria-busy="true">${state ? "It thinks…" : "The policy is being loaded…"}</p>`}
    ${(problem || state?.error) && html`<p class="problem" role="alert">${problem || state.error}</p>`}
    ${asked && html`<div class="card table"><p class="intro">You are <b>${seatName(state.seat)}</b>.</p>
      ${asked.scene && html`<${Scene} scene=${asked.scene} onMove=${move} />`}
      ${(!asked.scene || asked.prompt.length > 40) && html`<details open=${!asked.scene}><summary>The prompt in words</summary><pre>${asked.prompt}</pre></details>`}
      <div class="controls">${asked.actions.map((action, i) => html`<button disabled=${busy} onClick=${() => move(action)}>${asked.names[i]}${hint && html` <small>${percent(hint[action] ?? 0)}</small>`}</button>`)}</div>
      ${!asked.closed && html`<form class="tools" onSubmit=${(event) => { event.preventDefault(); move(new FormData(event.target).get("text")); event.target.reset(); }}><label class="wide"><span>In your own words</span><textarea name="text" rows="3" required></textarea></label><button disabled=${busy}>Say it</button></form>`}
      <button class="plain" onClick=${() => ask(`/api/play/${state.id}`, { hint: true }).then((found) => (Object.keys(found.hint).length ? setHint(found.hint) : setProblem("This player gives no probabilities: they are known for one-token replies of a policy on this machine.")), (e) => setProblem(e.message))}>What would it do here?</button></div>`}
    ${state?.over && html`<${Over} game=${state.over} seat=${state.seat} />`}`;
};
