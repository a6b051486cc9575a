// The frame around every page: which page an address means, and the ways between them.
import { render } from "preact";
import { html, Link, useAddress, Waiting } from "/static/lib.js";
import { Runs } from "/static/runs.js";
import { Run } from "/static/run.js";
import { Compare } from "/static/compare.js";
import { Games } from "/static/games.js";
import { Game } from "/static/game.js";
import { Group } from "/static/group.js";
import { Ladder } from "/static/ladder.js";
import { Config } from "/static/config.js";
import { Play } from "/static/play.js";

const TABS = [["", "Overview"], ["games", "Games"], ["ladder", "Checkpoints"], ["play", "Play"], ["config", "Config"]];

const PAGES = [
  [/^\/$/, () => html`<${Runs} />`],
  [/^\/compare$/, () => html`<${Compare} />`],
  [/^\/run\/([^/]+)\/?$/, (run) => html`<${Run} key=${run} run=${run} />`],
  [/^\/run\/([^/]+)\/games$/, (run) => html`<${Games} key=${run} run=${run} />`],
  [/^\/run\/([^/]+)\/games\/(\w+)\/(\d+)$/, (run, file, number) => html`<${Game} run=${run} file=${file} number=${Number(number)} />`],
  [/^\/run\/([^/]+)\/group\/(\w+)$/, (run, file) => html`<${Group} run=${run} file=${file} />`],
  [/^\/run\/([^/]+)\/ladder$/, (run) => html`<${Ladder} key=${run} run=${run} />`],
  [/^\/run\/([^/]+)\/play$/, (run) => html`<${Play} key=${run} run=${run} />`],
  [/^\/run\/([^/]+)\/config$/, (run) => html`<${Config} key=${run} run=${run} />`],
];

const Bar = ({ path }) => {
  const [, run, page = ""] = path.match(/^\/run\/([^/]+)(?:\/(\w+))?/) || [];
  const current = page === "group" ? "games" : page;
  return html`<nav class="top" aria-label="Pages"><div>
    <${Link} to="/" class="brand"><svg class="logo" viewBox="0 0 44 24" aria-hidden="true">
      <path class="seat-0" d="M4,4l16,16m0,-16l-16,16" /><circle class="seat-1" cx="32" cy="12" r="8.5" />
    </svg>Sparring<//>
    <span class="links">${run && html`<b class="of-run">${decodeURIComponent(run)}</b>`}
      ${run && TABS.map(([tab, title]) => html`<${Link} to=${`/run/${run}${tab && `/${tab}`}`}
        aria-current=${tab === current ? "page" : undefined}>${title}<//>`)}
    </span></div></nav>`;
};

const App = () => {
  const { pathname } = useAddress();
  const found = PAGES.map(([shape, page]) => [pathname.match(shape), page]).find(([match]) => match);
  return html`<${Bar} path=${pathname} /><main>${found
    ? found[1](...found[0].slice(1))
    : html`<${Waiting} error=${`There is no page ${pathname}.`} />`}</main>`;
};

render(html`<${App} />`, document.getElementById("app"));
