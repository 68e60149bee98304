"""The report's style sheet."""

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#59636e;--paper:#fff;--panel:#f6f8fa;--line:#d1d9e0;--warn:#fff4d6;
--warn-ink:#5c4300;--ok:#e3f5e8;--ok-ink:#12512a;--c0:#3565c8;--c1:#d98c00;--c2:#d3503f;--c3:#2b938a;--c4:#7d4fc4;
--c5:#4d9a3f;--c6:#c2549c;--c7:#8a6a4f;--c8:#7d8590}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9aa5b1;--paper:#0f141a;--panel:#171d25;--line:#313a45;
--warn:#3a2f10;--warn-ink:#f2d78c;--ok:#12301d;--ok-ink:#9fdcb4;--c0:#6f9df5;--c1:#f0b13c;--c2:#f2796a;--c3:#54c4b8;
--c4:#b38cf0;--c5:#83cc73;--c6:#e58cc4;--c7:#c2a083;--c8:#98a2ad}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:26px;margin:0}h2{font-size:20px;margin:44px 0 4px;border-bottom:1px solid var(--line);padding-bottom:4px}
code{overflow-wrap:anywhere}
.note,header p,footer p{color:var(--dim);margin:4px 0 14px;max-width:80ch}
.warn,.whole{padding:8px 12px;border-radius:6px;max-width:none!important}
.warn{background:var(--warn);color:var(--warn-ink)!important}.whole{background:var(--ok);color:var(--ok-ink)!important}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(140px,1fr));gap:8px;margin:16px 0}
.tiles div{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:8px 12px}
.tiles dt{color:var(--dim);font-size:13px}.tiles dd{margin:0;font-size:22px;font-variant-numeric:tabular-nums}
figure{margin:18px 0;padding:12px;border:1px solid var(--line);border-radius:6px;background:var(--panel)}
figcaption{font-weight:600;margin-bottom:4px;overflow-wrap:anywhere}
figure>svg{display:block;width:100%;height:auto}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;padding:0;margin:4px 0 8px;font-size:13px}
details{margin:6px 0}summary{cursor:pointer;color:var(--dim);font-size:13px}
.scroll{overflow-x:auto;margin:12px 0}
table{border-collapse:collapse;font-size:13px;min-width:100%}
caption{text-align:left;font-weight:600;padding:4px 0}
th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line);vertical-align:top;
max-width:340px;overflow-wrap:anywhere}
td:not(.number){min-width:11ch}
th{color:var(--dim);font-weight:600;white-space:nowrap}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
footer{margin-top:48px;border-top:1px solid var(--line);padding-top:8px}
svg text{fill:var(--dim);font:12px system-ui,-apple-system,"Segoe UI",sans-serif}
svg .label{fill:var(--ink)}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--dim);stroke-width:1}
.limit{stroke:var(--ink);stroke-width:2}.partial{fill:var(--dim);fill-opacity:.13}.heat{fill:var(--c0)}
.s0{fill:var(--c0)}.s1{fill:var(--c1)}.s2{fill:var(--c2)}.s3{fill:var(--c3)}.s4{fill:var(--c4)}.s5{fill:var(--c5)}
.s6{fill:var(--c6)}.s7{fill:var(--c7)}.s8{fill:var(--c8)}
"""
