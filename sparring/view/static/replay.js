// Steps through the games of a report. The page reads without it.
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
})();
