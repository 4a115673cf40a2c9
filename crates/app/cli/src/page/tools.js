const $ = (id) => document.getElementById(id);
const number = (v) => v >= 1000 ? v.toFixed(0) : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v >= 1 ? v.toFixed(2) : v.toPrecision(2);
const seconds = (s) => s === 0 ? "-" : s < 0.0995 ? number(1e3 * s) + " ms" : number(s) + " s";
const bytes = (n) => n >= 1e9 ? number(n / 1e9) + " GB" : n >= 1e6 ? number(n / 1e6) + " MB" : n >= 1e3 ? number(n / 1e3) + " kB" : n + " B";
function make(tag, words, kind) {
  const made = document.createElement(tag);
  if (words !== undefined) made.textContent = words;
  if (kind) made.className = kind;
  return made;
}
function drawn(tag, attributes, words) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (words !== undefined) made.textContent = words;
  return made;
}
