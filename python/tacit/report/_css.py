"""The page's style: dark text on white, one column on a phone, plot and table side by side on a desk."""

CSS = """
:root { color-scheme: light; --ink: #1a1a1a; --soft: #555; --line: #dcdcdc; --tint: #f6f7f8; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif; }
main { max-width: 84rem; margin: 0 auto; padding: 1.5rem clamp(0.9rem, 3vw, 2.5rem) 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 0.4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 0.4rem; padding-top: 0.8rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 0.2rem; }
p { margin: 0.3rem 0 0.7rem; max-width: 48rem; overflow-wrap: anywhere; }
.caption, .note { color: var(--soft); font-size: 0.875rem; }
.note { margin-top: 0.4rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 0.15rem 2rem; margin: 0.6rem 0; }
dl div { display: flex; gap: 0.8rem; border-bottom: 1px solid var(--line); padding: 0.2rem 0; min-width: 0; }
dt { color: var(--soft); flex: 0 0 8.5rem; overflow-wrap: anywhere; }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: minmax(0, 1fr); gap: 0.5rem 1.8rem; align-items: start; }
@media (min-width: 62rem) { .pair { grid-template-columns: minmax(0, 9fr) minmax(0, 10fr); } }
.pair > * { min-width: 0; }
figure { margin: 0; }
img { display: block; width: 100%; max-width: 40rem; height: auto; }
.wide img { max-width: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.8125rem; font-variant-numeric: tabular-nums; margin-top: 0.5rem; }
caption { text-align: left; font-weight: 600; padding: 0.5rem 0 0.2rem; }
th, td { text-align: left; padding: 0.25rem 0.75rem 0.25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; border-bottom: 1.5px solid #888; vertical-align: bottom; line-height: 1.25; }
td { white-space: nowrap; max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
.n { text-align: right; }
details { margin: 0.8rem 0; border: 1px solid var(--line); border-radius: 6px; padding: 0 1rem; }
details[open] { padding-bottom: 0.8rem; }
summary { cursor: pointer; font-weight: 600; padding: 0.55rem 0; overflow-wrap: anywhere; }
pre { background: var(--tint); padding: 0.8rem; overflow-x: auto; font-size: 0.8125rem; line-height: 1.45; border-radius: 4px; }
.remarks li { overflow-wrap: anywhere; }
@media print { details { break-inside: avoid; } .pair { break-inside: avoid; } }
"""
