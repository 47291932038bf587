import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { startService } from '../all-in-one/service.ts'
import { takeDashboardPictures } from './dashboard-pictures.ts'

/**
 * `npm run picture` creates docs/images/*.png: it runs the demo with a temporary service, embedded
 * parts and a fixed rate, and takes a screenshot of the output with a headless Chromium. Then it
 * sends a month of tickets, and takes pictures of the dashboard.
 */

const root = join(import.meta.dirname, '../..')
const run = promisify(execFile)
const demoMs = 120_000
const width = 960
const lineHeight = 19
const margin = 24

const style = `
  body { margin: 0; padding: ${margin}px; background: #14181f; color: #d5dbe3 }
  pre { margin: 0; font: 13.5px/${lineHeight}px 'DejaVu Sans Mono', monospace }
  b { font-weight: normal; color: #79b8ff }
  i { font-style: normal; color: #7fd08a }
  s { text-decoration: none; color: #ff8787 }`

/** Renders the demo's output as the page of a terminal. Returns the page and its height. */
export function renderPage(output: string): { html: string; height: number } {
  const lines = ['$ npm run demo', '', ...output.trimEnd().split('\n')]
  const html = `<!doctype html><meta charset="utf-8"><style>${style}</style><pre>${lines.map(markUp).join('\n')}</pre>`
  return { html, height: lines.length * lineHeight + 2 * margin }
}

const markUp = (line: string): string =>
  line
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replace(/^ {2}Refused/, '<s>$&</s>')
    .replace(/^ {2}[A-Z][a-z]+(?: [a-z]+)?(?= {2,})/, '<b>$&</b>')
    .replace(/█+| equal$|Everything adds up\./, '<i>$&</i>')

/** Starts a service in the folder for `work`. */
async function withService<T>(
  folder: string,
  work: (service: Awaited<ReturnType<typeof startService>>) => Promise<T>,
): Promise<T> {
  const ports = ['CORE_PORT', 'PLATFORM_PORT', 'BUILDER_PORT', 'SIDECAR_PORT', 'ADMIN_PORT']
  const service = await startService({
    TOLLGATE_DATA_DIR: folder,
    RATE_FIXED: '3000',
    ...Object.fromEntries(ports.map((name) => [name, '0'])),
  })
  try {
    return await work(service)
  } finally {
    await service.stop()
  }
}

async function runDemo(folder: string): Promise<string> {
  const program = join(root, 'deploy/tollgate.mjs')
  const options = {
    env: { PATH: process.env['PATH'], TOLLGATE_DATA_DIR: folder },
    timeout: demoMs,
  }
  return (await run(process.execPath, [program, 'demo'], options)).stdout
}

const chromium = process.env['CHROMIUM'] ?? '/usr/bin/chromium'

async function takePicture(page: { html: string; height: number }, folder: string): Promise<void> {
  const file = join(folder, 'demo.html')
  await writeFile(file, page.html)
  const picture = join(root, 'docs/images/demo.png')
  await run(chromium, [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--hide-scrollbars',
    '--force-device-scale-factor=1',
    `--user-data-dir=${join(folder, 'browser')}`,
    `--window-size=${width},${page.height}`,
    `--screenshot=${picture}`,
    `file://${file}`,
  ])
  process.stdout.write(`${picture}: ${width} x ${page.height}\n`)
}

if (import.meta.main) {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-picture-'))
  try {
    await withService(folder, async ({ quickstart }) => {
      await takePicture(renderPage(await runDemo(folder)), folder)
      for (const path of await takeDashboardPictures(quickstart, chromium))
        process.stdout.write(`${path}\n`)
    })
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 })
  }
}
