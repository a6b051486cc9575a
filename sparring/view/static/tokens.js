// A reply token by token, coloured by probability, surprise or advantage; the numbers on hover.
import { html, number, percent, signed } from "/static/lib.js";

export const COLOURS = [["probability", "Probability"], ["surprise", "Surprise"], ["advantage", "Advantage"], ["plain", "None"]];

// Strength from 0 to 1 and the colour it is drawn in.
const shade = (token, by, most) => {
  if (by === "probability" && token.logprob !== null) return ["var(--green)", Math.exp(token.logprob)];
  if (by === "surprise" && token.logprob !== null) return ["var(--amber)", Math.min(1, -token.logprob / 6)];
  if (by === "advantage" && token.advantage !== null) return [token.advantage < 0 ? "var(--red)" : "var(--green)", Math.min(1, Math.abs(token.advantage) / most)];
  return ["transparent", 0];
};

const visible = (token) => (token.text === null ? `#${token.id} ` : token.text);

export const numbers = (token) => [
  `token ${token.id}`,
  token.logprob !== null && `probability ${percent(Math.exp(token.logprob))}`,
  token.logprob !== null && `logprob ${number(token.logprob)}`,
  token.advantage !== null && `advantage ${signed(token.advantage)}`,
].filter(Boolean).join(" · ");

export const Tokens = ({ turn, by }) => {
  const most = Math.max(1e-9, ...turn.tokens.map((token) => Math.abs(token.advantage ?? 0)));
  return html`<pre class="tokens">${turn.tokens.map((token) => {
    const [colour, strength] = shade(token, by, most);
    return html`<span class="token" tabindex="0" title=${numbers(token)} data-logprob=${token.logprob} data-probability=${token.logprob === null ? undefined : Math.exp(token.logprob)}
      style=${`background:color-mix(in srgb, ${colour} ${Math.round(8 + 50 * strength) * (strength > 0)}%, transparent)`}>${visible(token)}</span>`;
  })}</pre>`;
};
