import type { FastifySwaggerUiOptions } from '@fastify/swagger-ui'

/** How the documents' pages look: our name, and a layout that fits a phone. Everything is served from here. */

const css = `
:root { color-scheme: light }
body { margin: 0; background: #fbfbfa }
.tollgate { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; align-items: baseline; padding: .9rem 1.25rem;
  background: #14231c; color: #fff; font: 16px/1.4 system-ui, sans-serif }
.tollgate strong { font-size: 1.15rem }
.tollgate a { color: #bfe8d2; padding: .25rem 0 }
.swagger-ui .info { margin: 1.5rem 0 }
.swagger-ui .info .title small { vertical-align: middle }
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

// Without the viewport a phone lays the page out as if it were a desktop's.
const script = (links: readonly Link[]): string => `
const viewport = document.createElement('meta')
viewport.name = 'viewport'
viewport.content = 'width=device-width, initial-scale=1'
document.head.append(viewport)
const header = document.createElement('header')
header.className = 'tollgate'
const name = document.createElement('strong')
name.textContent = 'tollgate API'
header.append(name)
for (const [text, href] of ${JSON.stringify(links)}) {
  const link = document.createElement('a')
  link.textContent = text
  link.href = href
  header.append(link)
}
document.body.prepend(header)
`

const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#14231c"/>
<path d="M6 20h20M10 20V9m12 11V9M6 25h20" stroke="#7fd6a8" stroke-width="3" stroke-linecap="round"/></svg>`

/** A page's text and address, in the header of the documents' pages. */
export type Link = readonly [text: string, href: string]

type Theme = NonNullable<FastifySwaggerUiOptions['theme']>

export const themeOf = (links: readonly Link[]): Theme => ({
  title: 'tollgate API',
  css: [{ filename: 'tollgate.css', content: css }],
  js: [{ filename: 'tollgate.js', content: script(links) }],
  favicon: [
    { filename: 'tollgate.svg', rel: 'icon', type: 'image/svg+xml', sizes: 'any', content: icon },
  ],
})
