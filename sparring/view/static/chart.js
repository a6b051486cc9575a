// One chart as a card, and the tools that all charts of a page share through the address.
import { useEffect, useRef } from "preact/hooks";
import { html, number } from "/static/lib.js";

export const chartState = (query) => ({
  zoom: query.zoom ? query.zoom.split(",").map(Number) : null,
  smooth: query.smooth || "auto",
  log: query.log === "1",
});

export const ChartTools = ({ query, change }) => html`<div class="tools chart-tools">
  <label><span>Smoothing</span><select value=${query.smooth || "auto"} onChange=${(event) => change({ smooth: event.target.value === "auto" ? "" : event.target.value }, { replace: true })}>
    ${["auto", "none", "light", "strong"].map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
  <label class="check"><input type="checkbox" checked=${query.log === "1"} onChange=${(event) => change({ log: event.target.checked ? "1" : "" }, { replace: true })} /> Log axis</label>
  ${query.zoom
    ? html`<button class="reset" onClick=${() => change({ zoom: "" }, { replace: true })}>Reset zoom</button>`
    : html`<small class="hint">Drag to zoom, double-click to reset, click for the games.</small>`}
</div>`;

export const Chart = ({ chart, spec, state, onZoom, onPick, height }) => {
  const node = useRef(null);
  const handle = useRef(null);
  const calls = useRef({});
  calls.current = { onZoom, onPick };
  const { zoom, smooth, log } = state;
  const at = zoom ? zoom.join() : "";
  useEffect(() => {
    handle.current = window.sparring.mount(node.current, spec, {
      ...state, height, onZoom: (range) => calls.current.onZoom?.(range),
      onPick: onPick ? (x) => calls.current.onPick(x) : undefined,
    });
    return () => handle.current.destroy();
  }, []);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) { first.current = false; return; }
    handle.current.update(spec, { zoom, smooth, log });
  }, [spec, at, smooth, log]);
  const last = (ys) => [...ys].reverse().find((y) => y !== null);
  return html`<figure class="card chart" data-title=${chart.title}>
    <figcaption><div>${chart.tag && html`<p class="tag">${chart.tag}</p>`}<h4>${chart.title}</h4></div>
      ${!chart.named && spec.curves.length === 1 && html`<p class="now">${number(last(spec.ys[0]), chart.percent)}</p>`}</figcaption>
    ${chart.explain && html`<p class="explain">${chart.explain}</p>`}
    <div class="plot" ref=${node}></div>
    ${(chart.named || spec.curves.length > 1) && html`<ul class="legend">${spec.curves.map((curve, i) =>
      html`<li><i class=${curve.colour}></i>${curve.label} <b>${number(last(spec.ys[i]), chart.percent)}</b></li>`)}</ul>`}
  </figure>`;
};
