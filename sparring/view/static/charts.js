// Draws charts with uPlot, the same in the view and in the report: raw values on hover, a cursor
// that all charts share, zoom by dragging, smoothing, a logarithmic axis, marks for events.
(() => {
  "use strict";
  const MANY = 60; // a curve with more points than this is smoothed unless somebody says otherwise
  const DOTS = 30; // one with no more than this shows each point
  const HEIGHT = 176;

  const number = (value, percent) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const scaled = percent ? value * 100 : value;
    const size = Math.abs(scaled);
    const text = size && (size < 1e-3 || size >= 1e7)
      ? scaled.toExponential(1).replace(".0e", "e").replace("e+", "e")
      : scaled.toLocaleString("en", percent
        ? { maximumFractionDigits: 1 }
        : { maximumSignificantDigits: size >= 1000 ? Math.ceil(Math.log10(size + 1)) : 3 });
    return text.replace("-", "−") + (percent ? " %" : "");
  };

  const smooth = (ys, share) => {
    const at = [];
    ys.forEach((y, i) => { if (y !== null) at.push(i); });
    const most = Math.max(1, Math.round(at.length * share));
    const out = ys.map(() => null);
    at.forEach((i, k) => {
      const half = Math.min(most, k, at.length - 1 - k); // even at the ends, or those would bend
      let sum = 0;
      for (let j = k - half; j <= k + half; j++) sum += ys[at[j]];
      out[i] = sum / (2 * half + 1);
    });
    return out;
  };

  const css = (node, name) => getComputedStyle(node).getPropertyValue(name).trim();
  const colourOf = (node, colour) => {
    const probe = document.createElement("i");
    probe.className = colour;
    probe.hidden = true;
    node.append(probe);
    const found = css(probe, "--c");
    probe.remove();
    return found || css(node, "--ink");
  };
  const faded = (colour, share) => `color-mix(in srgb, ${colour} ${Math.round(share * 100)}%, transparent)`;

  const range = (spec) => (u, low, high) => {
    if (low === null || high === null || !Number.isFinite(low)) return [0, 1];
    if (spec.whole) return [0, 1];
    if (low >= 0 && (spec.percent || low <= 0.5 * high)) low = 0;
    if (low === high) {
      const pad = Math.abs(high) * 0.5 || (spec.percent ? 0.1 : 1);
      return [Math.min(low, 0) - (low < 0 ? pad : 0), Math.max(high, 0) + pad];
    }
    const pad = 0.06 * (high - low);
    return [low === 0 ? 0 : low - pad, spec.percent && high <= 1 ? Math.min(1, high + pad) : high + pad];
  };

  const tickNames = (spec) => (u, marks) => {
    if (spec.percent) return marks.map((mark) => number(mark, true));
    const size = Math.max(...marks.map(Math.abs));
    if (size >= 1e-3 && size < 1e6) {
      let digits = 0;
      while (digits < 6 && marks.some((m) => Math.abs(m - Number(m.toFixed(digits))) > 1e-9)) digits++;
      return marks.map((m) => (m === 0 ? "0" : m.toLocaleString("en",
        { minimumFractionDigits: digits, maximumFractionDigits: digits })).replace("-", "−"));
    }
    return marks.map((mark) => number(mark, false));
  };

  // Marks of events, behind the curves.
  const eventMarks = (node, events) => ({
    hooks: {
      drawAxes: (u) => events.forEach((event) => {
        if (event.iteration < u.scales.x.min || event.iteration > u.scales.x.max) return;
        const x = Math.round(u.valToPos(event.iteration, "x", true));
        const { top, height } = u.bbox;
        const unit = devicePixelRatio;
        u.ctx.save();
        u.ctx.strokeStyle = u.ctx.fillStyle = css(node, event.calm ? "--grey" : "--red");
        u.ctx.setLineDash([3 * unit, 3 * unit]);
        u.ctx.beginPath();
        u.ctx.moveTo(x, top);
        u.ctx.lineTo(x, top + height);
        u.ctx.stroke();
        u.ctx.beginPath();
        u.ctx.moveTo(x - 4 * unit, top - 7 * unit);
        u.ctx.lineTo(x + 4 * unit, top - 7 * unit);
        u.ctx.lineTo(x, top);
        u.ctx.fill();
        u.ctx.restore();
      }),
    },
  });

  const tip = (node, spec) => {
    const box = document.createElement("div");
    box.className = "tip";
    box.hidden = true;
    const line = (text, colour) => {
      const row = document.createElement(colour ? "div" : "small");
      if (colour) {
        const dot = document.createElement("i");
        dot.className = colour;
        row.append(dot);
      }
      row.append(text);
      box.append(row);
    };
    const show = (u) => {
      const { idx, left } = u.cursor;
      box.hidden = idx === null || idx === undefined || left < 0;
      if (box.hidden) return;
      box.replaceChildren();
      line(`${spec.step || "iteration"} ${spec.x[idx].toLocaleString("en")}`);
      spec.curves.forEach((curve, i) => {
        const value = spec.ys[i][idx];
        if (value === null || value === undefined) return;
        line((spec.curves.length > 1 ? `${curve.label} ` : "") + number(value, spec.percent), curve.colour);
      });
      (spec.events || []).filter((e) => e.iteration === spec.x[idx]).forEach((e) => line(e.title));
      const at = u.bbox.left / devicePixelRatio + left;
      const flip = at > node.clientWidth / 2;
      box.style.left = `${flip ? at - box.offsetWidth - 10 : at + 10}px`;
    };
    return { box, plugin: { hooks: { init: (u) => u.root.append(box), setCursor: show } } };
  };

  const build = (node, spec, state, options) => {
    const share = { none: 0, light: 1 / 60, strong: 1 / 10 }[state.smooth] ?? 1 / 30;
    const muted = css(node, "--faint");
    const grid = { stroke: css(node, "--soft"), width: 1 };
    const font = `11px ${css(node, "--sans")}`;
    const series = [{}];
    const data = [spec.x];
    const bands = [];
    spec.curves.forEach((curve, i) => {
      const ys = spec.ys[i];
      const count = ys.reduce((n, y) => n + (y !== null), 0);
      const colour = colourOf(node, curve.colour);
      const wanted = state.smooth === "auto" ? count > MANY : state.smooth !== "none" && count > 4;
      const points = { show: count <= DOTS, size: 5, fill: css(node, "--card"), stroke: colour, width: 1.6 };
      const line = { spanGaps: true, points: { show: false }, scale: "y" };
      if (curve.low) { // a band: the least and the most of several runs
        series.push({ ...line, stroke: "transparent" }, { ...line, stroke: "transparent" });
        data.push(curve.high, curve.low);
        bands.push({ series: [series.length - 2, series.length - 1], fill: faded(colour, 0.16) });
      }
      series.push({ ...line, stroke: wanted ? faded(colour, 0.3) : colour, width: wanted ? 1 : 2, points });
      data.push(ys);
      if (wanted) {
        series.push({ ...line, stroke: colour, width: 2 });
        data.push(smooth(ys, share));
      }
    });
    const values = spec.ys.flat().filter((y) => y !== null);
    const log = state.log && values.length && values.every((y) => y > 0);
    const hover = tip(node, spec);
    const scaleX = state.zoom
      ? { time: false, range: () => state.zoom }
      : { time: false, range: (u, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) };
    const axis = { stroke: muted, grid, font, ticks: { show: false } };
    return new uPlot({
      width: Math.max(120, node.clientWidth), height: options.height || HEIGHT, series, bands,
      legend: { show: false }, padding: [10, 16, 0, 0],
      scales: { x: scaleX, y: log ? { distr: 3 } : { range: range(spec) } },
      axes: [
        { ...axis, grid: { show: false }, size: 26, values: (u, marks) => marks.map((m) => (Number.isInteger(m) ? m.toLocaleString("en") : "")) },
        { ...axis, values: tickNames(spec), gap: 6, size: (u, names) => (names ? 14 + 6.4 * Math.max(...names.map((n) => (n || "").length)) : 50) },
      ],
      cursor: { sync: { key: options.sync || "charts", setSeries: false }, drag: { x: true, y: false, setScale: false }, y: false, points: { size: 7 } },
      hooks: {
        setSelect: [(u) => {
          if (u.select.width < 6) return;
          const low = u.posToVal(u.select.left, "x");
          const high = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          options.onZoom([low, high]);
        }],
        ready: [(u) => {
          let at = null;
          u.over.addEventListener("mousedown", (event) => { at = event.clientX; });
          u.over.addEventListener("click", (event) => {
            if (!options.onPick || at === null || Math.abs(event.clientX - at) > 3) return;
            options.onPick(spec.x[u.posToIdx(event.clientX - u.over.getBoundingClientRect().left)]);
          });
          u.over.addEventListener("dblclick", () => options.onZoom(null));
        }],
      },
      plugins: [eventMarks(node, spec.events || []), hover.plugin],
    }, data, node);
  };

  // A chart in `node`: options are {zoom, smooth, log, sync, height, onZoom, onPick}.
  const mount = (node, spec, options = {}) => {
    let state = { zoom: null, smooth: "auto", log: false, ...options };
    let current = spec;
    let plot = null;
    const draw = () => {
      if (plot) plot.destroy();
      plot = build(node, current, state, { ...options, onZoom: options.onZoom || (() => {}) });
    };
    draw();
    const size = new ResizeObserver(() => {
      const width = node.clientWidth;
      if (plot && width && width !== plot.width) plot.setSize({ width, height: plot.height });
    });
    size.observe(node);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    return {
      update: (next, changed) => { current = next; state = { ...state, ...changed }; draw(); },
      destroy: () => { size.disconnect(); dark.removeEventListener("change", draw); plot.destroy(); },
    };
  };

  // Charts whose data stands in the page, as all of a report's do; zooming one zooms all.
  const drawAll = (root) => {
    const shown = [];
    const onZoom = (zoom) => shown.forEach(([handle, spec]) => handle.update(spec, { zoom }));
    root.querySelectorAll("[data-chart]").forEach((node) => {
      const spec = JSON.parse(node.dataset.chart);
      shown.push([mount(node, spec, { onZoom }), spec]);
    });
    return () => shown.forEach(([handle]) => handle.destroy());
  };

  window.sparring = { mount, number, smooth, drawAll };
  drawAll(document);
})();
