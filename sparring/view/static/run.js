// One run: what a person must know on top, six charts, the rest folded by group.
import { useEffect, useMemo, useState } from "preact/hooks";
import { aboutRun, go, html, Link, Markup, number, useJson, useQuery, useTitle, Waiting } from "/static/lib.js";
import { Chart, chartState, ChartTools } from "/static/chart.js";

// The log grows while somebody looks: lines are appended here as the server sends them.
const useLive = (run, data, reload) => {
  const [log, setLog] = useState(null);
  useEffect(() => { if (data) setLog({ x: data.x, columns: data.columns, events: data.events }); }, [data]);
  useEffect(() => {
    const source = new EventSource(`/api/runs/${run}/stream`);
    source.addEventListener("reset", reload);
    source.addEventListener("events", reload);
    source.addEventListener("metrics", (event) => {
      const line = JSON.parse(event.data);
      setLog((old) => (old ? append(old, line, reload) : old));
    });
    return () => source.close();
  }, [run, reload]);
  return log;
};

const append = (log, line, reload) => {
  const kept = log.x.findIndex((x) => x >= line.iteration); // a resumed run says an iteration again
  const length = kept < 0 ? log.x.length : kept;
  if (Object.keys(line).some((key) => key !== "iteration" && !(key in log.columns) && typeof line[key] === "number")) reload();
  const columns = Object.fromEntries(Object.entries(log.columns).map(([key, ys]) =>
    [key, [...ys.slice(0, length), typeof line[key] === "number" ? line[key] : null]]));
  return { ...log, x: [...log.x.slice(0, length), line.iteration], columns };
};

export const specOf = (chart, log) => {
  const rows = log.x.map((_, i) => i).filter((i) => chart.curves.some((curve) => log.columns[curve.key]?.[i] != null));
  return {
    percent: chart.percent, whole: chart.whole, curves: chart.curves, events: log.events,
    x: rows.map((i) => log.x[i]),
    ys: chart.curves.map((curve) => rows.map((i) => log.columns[curve.key]?.[i] ?? null)),
  };
};

const Notice = ({ notice, run }) => html`<li class=${`notice ${notice.kind}`}><b>${notice.title}</b>
  ${notice.iteration !== undefined && notice.iteration !== null && html`<${Link} to=${`/run/${run}/games?iteration=${notice.iteration}`}>iteration ${number(notice.iteration)}<//>`}
  <p>${notice.detail}${notice.link && html` <${Link} to=${`/run/${run}/${notice.link}`}>See them<//>`}</p></li>`;

const Constants = ({ charts, log }) => html`<details class="card constants"><summary>What stayed the same (${charts.length})</summary>
  <dl>${charts.map((chart) => html`<div><dt>${[chart.tag, chart.title].filter(Boolean).join(", ")}</dt>
    <dd>${chart.curves.map((curve) => (chart.named ? `${curve.label} ` : "") + number([...(log.columns[curve.key] || [])].reverse().find((y) => y !== null), chart.percent)).join(", ")}</dd></div>`)}</dl></details>`;

export const Run = ({ run }) => {
  const [query, change] = useQuery();
  const { data, error, reload } = useJson(`/api/runs/${run}`);
  const log = useLive(run, data, reload);
  useTitle(decodeURIComponent(run));
  const specs = useMemo(() => {
    if (!data || !log) return new Map();
    return new Map(data.sections.flatMap((section) => section.charts).map((chart) => [chart, specOf(chart, log)]));
  }, [data, log]);
  if (!data || !log) return html`<${Waiting} error=${error} />`;
  const state = chartState(query);
  const open = (query.open || "").split(",").filter(Boolean);
  const props = {
    state, onZoom: (zoom) => change({ zoom: zoom && zoom.map((x) => Number(x.toFixed(2))).join(",") }, { replace: true }),
    onPick: (x) => go(`/run/${run}/games?iteration=${x}`),
  };
  const card = (chart) => html`<${Chart} key=${`${chart.tag} ${chart.title} ${chart.curves[0].key}`} chart=${chart} spec=${specs.get(chart)} ...${props} />`;
  const key = data.key.map(([section, at]) => data.sections[section].charts[at]);
  const rest = data.sections.map((section) => ({ ...section, charts: section.charts.filter((c) => !c.constant && !key.includes(c)) })).filter((s) => s.charts.length);
  const constants = data.sections.flatMap((section) => section.charts).filter((chart) => chart.constant);
  return html`<header class="page"><h1>${data.id}</h1>
    <p class="lead small">${aboutRun(data).join(" · ")}
      ${data.iterations && html` · iteration <b class="iteration">${number(log.x.at(-1) ?? 0)}</b> of ${number(data.iterations)}`}</p></header>
    <ul class="notices" aria-label="What to know">${data.notices.map((notice) => html`<${Notice} notice=${notice} run=${run} />`)}</ul>
    ${data.tiles && html`<${Markup} of=${data.tiles} />`}
    ${key.length ? html`<section id="key"><${ChartTools} query=${query} change=${change} /><div class="grid">${key.map(card)}</div></section>`
      : data.parts.length === 0 && html`<p class="empty">No iteration has finished yet; curves appear here as soon as one has.</p>`}
    ${rest.map((section) => html`<details class="group" key=${section.title} open=${open.includes(section.title)}
      onToggle=${(event) => {
        const now = event.target.open;
        if (now !== open.includes(section.title)) change({ open: (now ? [...open, section.title] : open.filter((t) => t !== section.title)).join(",") }, { replace: true });
      }}>
      <summary>${section.title} <small>${section.charts.length}</small></summary>
      ${open.includes(section.title) && html`<div class="grid">${section.charts.map(card)}</div>`}</details>`)}
    ${constants.length > 0 && html`<${Constants} charts=${constants} log=${log} />`}
    ${data.parts.map((part) => html`<section key=${part.anchor}><h2>${part.title}</h2><${Markup} of=${part.body} /></section>`)}
    ${data.results && html`<section><h2>Closing evaluation</h2><${Markup} of=${data.results} /></section>`}`;
};
