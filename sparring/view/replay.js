// Steps through replayed games and shows values under the pointer. The page reads without it.
(() => {
  "use strict";
  document.documentElement.classList.add("js");

  const make = (tag, parent, text, name) => {
    const node = document.createElement(tag);
    if (text) node.textContent = text;
    if (name) node.className = name;
    parent.append(node);
    return node;
  };

  const current = (node, yes) => {
    if (yes) node.setAttribute("aria-current", "true");
    else node.removeAttribute("aria-current");
  };

  // Replays

  const PAUSE = 1100;
  const step = new Map(); // article -> function that moves by a number of frames

  const prepare = (article) => {
    const frames = [...article.querySelectorAll(".frame")];
    if (!frames.length) return;
    const controls = make("div", article, "", "controls");
    const play = make("button", controls, "Play", "play");
    const pills = frames.map((frame) => make("button", controls, frame.dataset.label));
    let at = 0;
    let timer = null;
    const show = (next) => {
      at = Math.max(0, Math.min(frames.length - 1, next));
      frames.forEach((frame, i) => frame.classList.toggle("on", i === at));
      pills.forEach((pill, i) => current(pill, i === at));
    };
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    };
    pills.forEach((pill, i) => {
      pill.addEventListener("click", () => { stop(); show(i); });
    });
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (at === frames.length - 1) show(0);
      play.textContent = "Pause";
      timer = setInterval(() => {
        show(at + 1);
        if (at === frames.length - 1) stop();
      }, PAUSE);
    });
    show(frames.length - 1);
    step.set(article, (by) => { stop(); show(at + by); });
  };

  const articles = [...document.querySelectorAll(".replay")];
  const links = [...document.querySelectorAll(".picker a")];
  const choose = (article) => {
    articles.forEach((other) => other.classList.toggle("on", other === article));
    links.forEach((link) => {
      current(link, link.hash === "#" + article.id);
    });
  };
  articles.forEach(prepare);
  links.forEach((link) => {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      choose(document.getElementById(link.hash.slice(1)));
    });
  });
  if (articles.length) {
    const last = document.querySelector(".picker ul:last-of-type a").hash;
    const named = (hash) => articles.find((article) => "#" + article.id === hash);
    choose(named(location.hash) || named(last));
  }
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const article = articles.find((other) => other.classList.contains("on"));
    if (!by || !step.has(article) || event.altKey || event.ctrlKey || event.metaKey) return;
    if (/^(PRE|INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
    step.get(article)(by);
  });

  // Values under the pointer

  const say = (value, percent) => {
    const number = percent ? value * 100 : value;
    const size = Math.abs(number);
    const text = size && size < 1e-3
      ? number.toExponential(1)
      : number.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 6 : 3 });
    return text.replace("-", "−") + (percent ? " %" : "");
  };
  const nearest = (xs, x) => {
    let best = 0;
    xs.forEach((other, i) => { if (Math.abs(other - x) < Math.abs(xs[best] - x)) best = i; });
    return best;
  };
  const svgNode = (tag, parent, attributes) => {
    const node = document.createElementNS(parent.namespaceURI, tag);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    parent.append(node);
    return node;
  };

  document.querySelectorAll("svg[data-hover]").forEach((svg) => {
    const data = JSON.parse(svg.dataset.hover);
    const series = data.series.filter((one) => one.x.length);
    svg.querySelectorAll("circle > title").forEach((title) => title.remove());
    const place = (share, from, to) => from + (to - from) * share;
    const atX = (x) => place(
      data.first === data.last ? 0.5 : (x - data.first) / (data.last - data.first),
      data.left, data.right,
    );
    const atY = (y) => place((y - data.low) / (data.high - data.low), data.bottom, data.top);
    let shown = [];
    const clear = () => { shown.forEach((node) => node.remove()); shown = []; };
    svg.addEventListener("pointerleave", clear);
    svg.addEventListener("pointermove", (event) => {
      clear();
      const box = svg.getBoundingClientRect();
      const card = svg.parentElement.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width;
      const share = ((event.clientX - box.left) / scale - data.left) / (data.right - data.left);
      const wanted = data.first + share * (data.last - data.first);
      const closest = series.map((one) => one.x[nearest(one.x, wanted)]);
      const x = closest[nearest(closest, wanted)];
      shown.push(svgNode("line", svg, {
        class: "cursor", x1: atX(x), x2: atX(x), y1: data.top, y2: data.bottom,
      }));
      const tip = make("div", svg.parentElement, "", "tip");
      shown.push(tip);
      make("small", tip, "iteration " + x.toLocaleString("en"));
      series.forEach((one) => {
        const i = one.x.indexOf(x);
        if (i < 0) return;
        shown.push(svgNode("circle", svg, {
          class: "point " + one.c, cx: atX(x), cy: atY(one.y[i]), r: 4,
        }));
        const row = make("div", tip);
        make("i", row, "", one.c);
        row.append((series.length > 1 ? one.n + " " : "") + say(one.y[i], data.percent));
      });
      const left = box.left - card.left + atX(x) * scale;
      const flip = left > card.width / 2;
      tip.style.left = (flip ? left - tip.offsetWidth - 10 : left + 10) + "px";
      tip.style.top = box.top - card.top + data.top * scale + "px";
    });
  });
})();
