// What every page of the view uses: rendering, the address as state, answers of the server, words.
import { h } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import htm from "htm";

export const html = htm.bind(h);
export const number = window.sparring.number;
export const percent = (value) => number(value, true);
// A share, or its logarithm where the share would read 0 %.
export const likelihood = (logprob) => (logprob < -7 ? `logprob ${number(logprob)}` : `probability ${percent(Math.exp(logprob))}`);

// The address is the state: pages read it here, and going somewhere tells all of them.
const listeners = new Set();
const tell = () => listeners.forEach((listen) => listen());
addEventListener("popstate", tell);

export const go = (address, { replace = false } = {}) => {
  history[replace ? "replaceState" : "pushState"]({}, "", address);
  tell();
  if (!replace && !address.includes("#")) scrollTo(0, 0);
};

export const useAddress = () => {
  const [, again] = useState(0);
  useEffect(() => {
    const listen = () => again((n) => n + 1);
    listeners.add(listen);
    return () => listeners.delete(listen);
  }, []);
  return location;
};

// One key of the address's query, and a function that changes several at once.
export const useQuery = () => {
  const { search, pathname } = useAddress();
  const query = Object.fromEntries(new URLSearchParams(search));
  const change = useCallback((values, options) => {
    const next = new URLSearchParams(location.search);
    Object.entries(values).forEach(([key, value]) => {
      if (value === null || value === undefined || value === "" || value === false) next.delete(key);
      else next.set(key, value);
    });
    const text = next.toString();
    go(pathname + (text ? `?${text}` : ""), options);
  }, [pathname]);
  return [query, change];
};

// What a run is, as far as its config says so.
export const aboutRun = ({ recipe, policy, seed }) => [recipe, policy, seed === null ? "" : `seed ${seed}`].filter(Boolean);

// Names of runs as one value of an address, whatever characters they hold.
export const listed = (names) => names.map(encodeURIComponent).join(",");
export const unlisted = (text) => (text || "").split(",").filter(Boolean).map(decodeURIComponent);

export const Link = ({ to, children, ...rest }) => html`<a href=${to} ...${rest} onClick=${(event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(to);
}}>${children}</a>`;

export const ask = async (address, body) => {
  const answer = await fetch(address, body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error || `the server answered ${answer.status}`);
  return data;
};

// The server's answer for an address: {data, error, reload}. Old data stays while new data comes.
export const useJson = (address) => {
  const [state, setState] = useState({ data: null, error: "" });
  const latest = useRef(0);
  const reload = useCallback(() => {
    const mine = ++latest.current;
    if (!address) return;
    ask(address).then(
      (data) => { if (mine === latest.current) setState({ data, error: "", of: address }); },
      (error) => { if (mine === latest.current) setState({ data: null, error: error.message }); },
    );
  }, [address]);
  useEffect(reload, [reload]);
  return { ...state, fresh: state.of === address, reload };
};

// Ask again, a second after each answer, while something is still being loaded.
export const useAgain = (pending, data, reload) => useEffect(() => {
  if (!pending) return undefined;
  const timer = setTimeout(reload, 1000);
  return () => clearTimeout(timer);
}, [data]);

export const useTitle = (title) => useEffect(() => { document.title = `${title} · Sparring`; }, [title]);

// Single keys, where nobody is typing: {key: function}.
export const useKeys = (keys) => {
  const held = useRef(keys);
  held.current = keys;
  useEffect(() => {
    const press = (event) => {
      const action = held.current[event.key];
      if (!action || event.altKey || event.ctrlKey || event.metaKey) return;
      if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
};

export const ago = (seconds) => {
  const gone = Math.max(0, Date.now() / 1000 - seconds);
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([s]) => gone >= s) || [1, "s"];
  return `${Math.floor(gone / size)} ${unit}`;
};

export const signed = (value) => (value > 0 ? "+" : "") + number(value);
export const seatName = (seat) => (seat.length === 1 ? seat.toUpperCase() : seat[0].toUpperCase() + seat.slice(1));
export const show = (value) => (typeof value === "string" ? value : value === undefined ? "–" : JSON.stringify(value));

// Markup that the server made: a board, a table of results. Everything in it is escaped there.
// Charts in it are drawn once it is in the page.
export const Markup = ({ of, ...rest }) => {
  const node = useRef(null);
  useEffect(() => window.sparring.drawAll(node.current), [of]);
  return html`<div ref=${node} ...${rest} dangerouslySetInnerHTML=${{ __html: of }}></div>`;
};

export const Waiting = ({ error, children }) => error
  ? html`<p class="problem" role="alert">${error}</p>`
  : html`<p class="empty" aria-busy="true">${children || "Reading…"}</p>`;

export const Copy = ({ text }) => {
  const [done, setDone] = useState(false);
  return html`<code class="copy">${text}<button onClick=${() => {
    navigator.clipboard?.writeText(text).then(() => { setDone(true); setTimeout(() => setDone(false), 1200); });
  }}>${done ? "Copied" : "Copy"}</button></code>`;
};

// A dotted key that may be broken behind a dot or an underscore, and nowhere else.
export const breakable = (key) => key.split(/(?<=[._])/).flatMap((part) => [part, html`<wbr />`]);
