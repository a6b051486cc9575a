// Runs over each other: curves overlaid, repetitions with other seeds as a band, config differences.
import { useMemo } from "preact/hooks";
import { breakable, html, Link, show, useJson, useQuery, useTitle, Waiting } from "/static/lib.js";
import { Chart, chartState, ChartTools } from "/static/chart.js";

// Those who are drawn: each run alone, or runs that differ in their seed alone as one.
const linesOf = (data, apart) => {
  const bands = apart ? [] : data.bands;
  const inBand = new Set(bands.flat());
  const byId = Object.fromEntries(data.runs.map((run) => [run.id, run]));
  const groups = [...bands.map((ids) => ids.map((id) => byId[id])), ...data.runs.filter((run) => !inBand.has(run.id)).map((run) => [run])];
  return groups.map((runs, i) => ({
    runs, colour: `curve-${i % 6}`,
    label: runs.length > 1 ? `${runs[0].id} and ${runs.length - 1} more seed${runs.length > 2 ? "s" : ""}` : runs[0].id,
  }));
};

const column = (run, key, xs) => {
  const at = new Map(run.x.map((x, i) => [x, run.columns[key]?.[i] ?? null]));
  return xs.map((x) => at.get(x) ?? null);
};

const curveOf = (line, key, xs) => {
  const all = line.runs.map((run) => column(run, key, xs));
  const at = xs.map((_, i) => all.map((ys) => ys[i]).filter((y) => y !== null));
  const pick = (of) => at.map((ys) => (ys.length ? of(ys) : null));
  const mean = pick((ys) => ys.reduce((a, b) => a + b, 0) / ys.length);
  const curve = { label: line.label, colour: line.colour };
  if (line.runs.length > 1) Object.assign(curve, { low: pick((ys) => Math.min(...ys)), high: pick((ys) => Math.max(...ys)) });
  return [curve, mean];
};

const specOf = (chart, key, lines) => {
  const here = lines.filter((line) => line.runs.some((run) => run.columns[key]));
  const xs = [...new Set(here.flatMap((line) => line.runs.flatMap((run) =>
    run.x.filter((_, i) => run.columns[key]?.[i] != null))))].sort((a, b) => a - b);
  const found = here.map((line) => curveOf(line, key, xs));
  return { percent: chart.percent, whole: chart.whole, x: xs, curves: found.map(([c]) => c), ys: found.map(([, ys]) => ys), events: [] };
};

export const Compare = () => {
  const [query, change] = useQuery();
  const { data, error } = useJson(`/api/compare?runs=${encodeURIComponent(query.runs || "")}`);
  useTitle("Compare");
  const sections = useMemo(() => {
    if (!data) return [];
    const lines = linesOf(data, query.seeds === "apart");
    return data.sections.map((section) => ({
      title: section.title,
      charts: section.charts.flatMap((chart) => chart.curves.map((curve) => [
        { ...chart, named: true, title: chart.named ? `${chart.title.replace(/ \(\d+ of \d+\)$/, "")}: ${curve.label}` : chart.title, key: curve.key },
        specOf(chart, curve.key, lines),
      ])).filter(([, spec]) => spec.ys.some((ys) => new Set(ys.filter((y) => y !== null)).size > 1)),
    })).filter((section) => section.charts.length);
  }, [data, query.seeds]);
  if (!data) return html`<${Waiting} error=${error} />`;
  const state = chartState(query);
  const onZoom = (zoom) => change({ zoom: zoom && zoom.map((x) => Number(x.toFixed(2))).join(",") }, { replace: true });
  return html`<header class="page"><h1>Compare</h1><p class="lead small">${data.runs.map((run, i) => html`${i ? ", " : ""}<${Link} to=${`/run/${encodeURIComponent(run.id)}`}>${run.id}<//>`)}</p></header>
    <section><h2>Curves</h2><${ChartTools} query=${query} change=${change} />
      ${data.bands.length > 0 && html`<label class="check"><input type="checkbox" checked=${query.seeds === "apart"} onChange=${(event) => change({ seeds: event.target.checked ? "apart" : "" }, { replace: true })} /> Draw each seed apart</label>`}
      ${sections.map((section) => html`<h3 key=${section.title}>${section.title}</h3><div class="grid">${section.charts.map(([chart, spec]) =>
        html`<${Chart} key=${`${chart.key} ${query.seeds || ""}`} chart=${chart} spec=${spec} state=${state} onZoom=${onZoom} />`)}</div>`)}</section>
    <section id="config"><h2>What differs in their configs</h2>${data.config.length
      ? html`<div class="scroll card flush"><table class="list"><thead><tr><th>Key</th>${data.runs.map((run) => html`<th>${run.id}</th>`)}</tr></thead>
        <tbody>${data.config.map((row) => html`<tr><th><code>${breakable(row.key)}</code></th>${row.values.map((value) => html`<td><code>${show(value)}</code></td>`)}</tr>`)}</tbody></table></div>`
      : html`<p class="empty">Nothing.</p>`}</section>`;
};
