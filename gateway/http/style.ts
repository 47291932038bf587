const base = `
*{box-sizing:border-box}
html{font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;color:#1c2330;background:#f3f5f8;-webkit-text-size-adjust:100%}
body{margin:0;min-height:100vh;display:flex;flex-direction:column;align-items:center;padding:24px 16px}
main{overflow-wrap:anywhere;width:100%;max-width:420px;margin:auto;background:#fff;border:1px solid #dde2ea;border-top:4px solid var(--accent);border-radius:14px;padding:28px 24px;box-shadow:0 1px 2px rgba(20,30,50,.05),0 12px 32px rgba(20,30,50,.07)}
main.wide{max-width:760px}
.app{display:flex;align-items:center;gap:10px;margin:0 0 18px;font-weight:600}
.app span{flex:none;width:34px;height:34px;border-radius:9px;background:var(--accent);color:var(--on-accent);display:grid;place-items:center;font-weight:700}
h1{font-size:1.4rem;line-height:1.25;margin:0 0 8px}
h2{font-size:1.05rem;line-height:1.3;margin:28px 0 10px}
p{margin:0 0 16px;color:#4b5565}
a{color:inherit}
h1+.problem{margin-top:14px}
main>:last-child,main>form>:last-child{margin-bottom:0}
p.small{font-size:.875rem;margin:18px 0 0}
label{display:block;font-weight:600;font-size:.9rem;margin:0 0 6px}
input{width:100%;font:inherit;padding:11px 12px;margin:0 0 16px;border:1px solid #aeb7c4;border-radius:9px;background:#fff;color:inherit}
input.code{font:600 1.5rem/1.3 ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace;letter-spacing:.12em;text-align:center;text-transform:uppercase}
input:focus-visible,button:focus-visible,a:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
button,.button{display:block;width:100%;font:inherit;font-weight:600;text-align:center;text-decoration:none;padding:12px 16px;border:1px solid transparent;border-radius:9px;cursor:pointer;background:var(--accent);color:var(--on-accent)}
button.quiet,.button.quiet{background:#fff;color:#1c2330;border-color:#aeb7c4;margin-top:10px}
button:hover,.button:hover{filter:brightness(.95)}
.problem{background:#fdecec;color:#8f1d1d;border:1px solid #f3c4c4;border-radius:9px;padding:10px 12px}
.notice{background:#fff6e0;color:#6b4700;border:1px solid #edd9a3;border-radius:9px;padding:8px 12px;font-size:.875rem;margin:0 0 18px}
.amount{font-size:2rem;line-height:1.2;font-weight:700;color:inherit;margin:0 0 18px}
fieldset{border:0;margin:0 0 18px;padding:0;min-width:0}
legend{font-weight:600;font-size:.9rem;padding:0;margin:0 0 8px}
label.choice{display:flex;gap:12px;align-items:flex-start;font-weight:400;font-size:1rem;border:1px solid #aeb7c4;border-radius:9px;padding:10px 12px;margin:0 0 8px;cursor:pointer}
.choice input{flex:none;width:18px;height:18px;margin:3px 0 0;accent-color:var(--accent)}
.choice small{display:block;color:#6a7484}
.choice:has(:checked){border-color:var(--accent);box-shadow:0 0 0 1px var(--accent)}
.code-shown{font:700 1.7rem/1.3 ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace;letter-spacing:.1em;text-align:center;background:#f3f5f8;border-radius:9px;padding:12px;margin:0 0 16px;color:#1c2330}
ul{margin:0 0 18px;padding:0;list-style:none;border:1px solid #dde2ea;border-radius:9px}
li{padding:10px 12px;border-top:1px solid #dde2ea}
li:first-child{border-top:0}
li a{font-weight:600}
li small{display:block;color:#6a7484}
form.item{margin:0 0 32px}
form.item ul{margin-bottom:12px}
code{font:.9em ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace}
.search{display:flex;gap:10px;margin:0 0 8px}
.search input{flex:1;min-width:0;margin:0}
.search button{width:auto}
.or{text-align:center;color:#6a7484;font-size:.875rem;margin:14px 0 4px}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px 20px;margin:0 0 24px}
dt{font-size:.8rem;color:#6a7484}
dd{margin:0}
table{width:100%;border-collapse:collapse;margin:0 0 18px}
th,td{text-align:left;vertical-align:top;padding:10px 0;border-top:1px solid #dde2ea;font-weight:400}
thead th{border-top:0;font-size:.8rem;color:#6a7484}
tfoot th,tfoot td{font-weight:700;border-top:2px solid currentColor}
td small{display:block;color:#6a7484}
.number{text-align:right;padding-left:16px;white-space:nowrap;font-variant-numeric:tabular-nums}
footer{margin-top:20px;font-size:.8rem;color:#6a7484}
@media (prefers-color-scheme:dark){
html{color:#e8ecf2;background:#10141b}
main{background:#181e28;border-color:#2b3442;border-top-color:var(--accent);box-shadow:none}
p,li small,.choice small,.or,footer,dt,thead th,td small{color:#a3adbc}
th,td{border-color:#2b3442}
.notice{background:#332607;color:#f5dda0;border-color:#5c4813}
.amount{color:inherit}
label.choice{border-color:#465264}
.choice:has(:checked){border-color:var(--accent)}
input,button.quiet,.button.quiet{background:#10141b;color:#e8ecf2;border-color:#465264}
.code-shown{background:#10141b;color:#e8ecf2}
ul,li{border-color:#2b3442}
.problem{background:#3a1719;color:#ffc9c9;border-color:#6d2a2d}
}
@media print{
html{color:#000;background:#fff}
body{padding:0}
main{max-width:none;margin:0;padding:0;border:0;box-shadow:none;background:#fff}
p,dt,td small,thead th,footer{color:#444}
tr{break-inside:avoid}
}
`

export const ownColor = '#1f6feb'

/** Returns the page's style in this colour. Anything but #rrggbb is replaced by our own colour. */
export function renderStyle(color: string): string {
  const accent = /^#[0-9a-f]{6}$/i.test(color) ? color : ownColor
  return `:root{--accent:${accent};--on-accent:${isLight(accent) ? '#10141b' : '#ffffff'}}${base}`
}

// WCAG 2.2 relative luminance. Above 0.3, dark text is more readable than white.
function isLight(color: string): boolean {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(color.slice(at, at + 2), 16) / 255
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3
}
