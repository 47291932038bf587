import type { FastifySwaggerUiOptions } from '@fastify/swagger-ui'
import { icon } from '../../pages/icon.ts'
import { tokens } from '../../http/style/style.ts'

/**
 * Style of the documents' pages: like our other pages, light and dark, also on a phone. Everything
 * is served from here.
 */

const css = `
${tokens}
html, body, html.dark-mode, html.dark-mode body, html.dark-mode .swagger-ui { margin: 0; background: var(--page) }
.tollgate { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; align-items: center; padding: .75rem 1.25rem;
  background: var(--card); color: var(--text); border-bottom: 1px solid var(--line);
  font: 15px/1.5 var(--sans) }
.tollgate strong { display: flex; gap: .6rem; align-items: center; font-size: 1.1rem; margin-right: .5rem }
.tollgate img { width: 28px; height: 28px }
.tollgate a { color: var(--link); padding: .25rem 0; font-weight: 600; text-decoration: none }
.tollgate a:hover { text-decoration: underline }
.tollgate a:focus-visible, .swagger-ui :focus-visible { outline: 3px solid var(--link); outline-offset: 2px }
.swagger-ui, .swagger-ui .opblock-tag, .swagger-ui .info .title, .swagger-ui .opblock .opblock-summary-description, .swagger-ui .btn,
.swagger-ui .info p, .swagger-ui .info li, .swagger-ui table thead tr th, .swagger-ui label, .swagger-ui .tab li {
  font-family: var(--sans) }
.swagger-ui .info h2, .swagger-ui .info a, .swagger-ui .renderedMarkdown p, .swagger-ui .opblock-tag small { font-family: inherit }
.swagger-ui .opblock.opblock-deprecated { opacity: .85 }
.swagger-ui .opblock.opblock-deprecated .opblock-summary-method { background: #5b6675; color: #fff }
.swagger-ui .info { margin: 1.5rem 0 }
.swagger-ui .info .title small { vertical-align: middle }
.swagger-ui .info a, .dark-mode .swagger-ui .info a { color: var(--link) }
.swagger-ui .scheme-container, .dark-mode .swagger-ui .scheme-container { background: var(--card); box-shadow: none;
  border-top: 1px solid var(--line); border-bottom: 1px solid var(--line) }
.swagger-ui .topbar, .swagger-ui .version-stamp { display: none }
.swagger-ui .opblock .opblock-summary-operation-id { display: none }
@media (max-width: 700px) {
  .swagger-ui .wrapper { padding: 0 .75rem; box-sizing: border-box }
  .swagger-ui .info .title { font-size: 1.5rem; overflow-wrap: anywhere }
  .swagger-ui .scheme-container .schemes { display: block }
  .swagger-ui .opblock .opblock-summary { flex-wrap: wrap }
  .swagger-ui .opblock .opblock-summary-control { flex-wrap: wrap; min-width: 0 }
  .swagger-ui .opblock .opblock-summary-path { max-width: 100%; flex: 1 1 60%; min-width: 0 }
  .swagger-ui .opblock .opblock-summary-path a, .swagger-ui .opblock .opblock-summary-path span { overflow-wrap: anywhere;
    word-break: break-word; white-space: normal }
  .swagger-ui .opblock .opblock-summary-description { flex: 1 0 100%; padding: 0 .5rem .25rem; text-align: left }
  .swagger-ui .opblock-tag { font-size: 1.1rem }
  .swagger-ui table, .swagger-ui tbody, .swagger-ui tr, .swagger-ui td { display: block; width: auto; max-width: 100% }
  .swagger-ui table thead { display: none }
  .swagger-ui .parameters-col_name, .swagger-ui .response-col_status { width: auto; max-width: none }
  .swagger-ui .parameters-col_description input, .swagger-ui .parameters-col_description select,
  .swagger-ui .parameters-col_description textarea { width: 100%; max-width: 100%; box-sizing: border-box }
  .swagger-ui pre, .swagger-ui .highlight-code { max-width: 100%; overflow-x: auto }
  .swagger-ui .model-box, .swagger-ui .model { overflow-x: auto; max-width: 100% }
  .swagger-ui .btn { min-height: 44px }
}
`

// Without the viewport, a phone would use the desktop layout.
const script = (links: readonly Link[]): string => `
const viewport = document.createElement('meta')
viewport.name = 'viewport'
viewport.content = 'width=device-width, initial-scale=1'
document.head.append(viewport)
const header = document.createElement('header')
header.className = 'tollgate'
const name = document.createElement('strong')
const mark = document.createElement('img')
mark.src = document.querySelector('link[rel=icon]').href
mark.alt = ''
name.append(mark, 'tollgate API')
header.append(name)
for (const [text, href] of ${JSON.stringify(links)}) {
  const link = document.createElement('a')
  link.textContent = text
  link.href = href
  header.append(link)
}
document.body.prepend(header)
const dark = matchMedia('(prefers-color-scheme: dark)')
const follow = () => document.documentElement.classList.toggle('dark-mode', dark.matches)
dark.addEventListener('change', follow)
follow()
// Removed routes are folded, unless the address leads to one.
const folding = new MutationObserver(() => {
  const removed = document.getElementById('operations-tag-removed')
  if (removed === null) return
  folding.disconnect()
  if (removed.dataset.isOpen === 'true' && !location.hash.startsWith('#/removed')) removed.click()
})
folding.observe(document.body, { childList: true, subtree: true })
`

/** Text and URL of a page, in the header of the documents' pages. */
export type Link = readonly [text: string, href: string]

type Theme = NonNullable<FastifySwaggerUiOptions['theme']>

export const renderTheme = (links: readonly Link[]): Theme => ({
  title: 'tollgate API',
  css: [{ filename: 'tollgate.css', content: css }],
  js: [{ filename: 'tollgate.js', content: script(links) }],
  favicon: [
    { filename: 'tollgate.svg', rel: 'icon', type: 'image/svg+xml', sizes: 'any', content: icon },
  ],
})
