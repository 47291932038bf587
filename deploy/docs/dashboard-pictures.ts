import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Browser, type Page, chromium } from 'playwright-core'
import type { Quickstart } from '../local/data-dir.ts'
import { basic } from '../cli/client.ts'
import { createAppApi } from '../demo/api.ts'

/** Pictures of the dashboard with a month of tickets: docs/images/dashboard-*.png. */

const folder = join(import.meta.dirname, '../../docs/images')
const maxBytes = 150_000
const size = { width: 1200, height: 820 }
const waitMs = 60_000
const dayMs = 86_400_000
const days = 30
const people = ['ada', 'grace', 'barbara', 'katherine', 'radia'] as const
const models = [
  { app: 'live/streamdiffusion', pipeline: 'live', model_id: 'streamdiffusion' },
  { app: 'text-to-image/flux', pipeline: 'text-to-image', model_id: 'flux' },
  { app: 'llm/llama-3', pipeline: 'llm', model_id: 'llama-3' },
] as const
const creditUsdMicros = '60000000'

const pictures = [
  {
    name: 'dashboard-overview',
    path: '?range=30d',
    colorScheme: 'light',
    landmarks: ['.chart canvas', '#attention, p:text("Nothing needs attention.")'],
  },
  {
    name: 'dashboard-user',
    path: '/users/ada',
    colorScheme: 'dark',
    landmarks: ['section[aria-label="Facts"]'],
  },
] as const

/** Sends tickets of a month to the service, and takes the pictures. Returns the paths of the files. */
export async function takeDashboardPictures(
  service: Quickstart,
  executablePath: string,
): Promise<string[]> {
  await sendMonth(service)
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] })
  try {
    const paths: string[] = []
    for (const picture of pictures) paths.push(await takePicture(browser, service, picture))
    return paths
  } finally {
    await browser.close()
  }
}

async function takePicture(
  browser: Browser,
  { platformUrl, clientId, ownerEmail, ownerPassword }: Quickstart,
  { name, path, colorScheme, landmarks }: (typeof pictures)[number],
): Promise<string> {
  const page = await browser.newPage({ viewport: size, colorScheme })
  page.setDefaultTimeout(waitMs)
  await page.goto(`${platformUrl}/app/${clientId}${path}`)
  await page.getByLabel('E-mail address').fill(ownerEmail)
  await page.getByLabel('Password').fill(ownerPassword)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.locator('main h1').waitFor()
  for (const landmark of landmarks) await page.locator(landmark).first().waitFor()
  await awaitData(page)
  const picture = await page.screenshot({ animations: 'disabled' })
  await page.close()
  if (picture.length > maxBytes)
    throw new Error(`${name}.png has ${picture.length} bytes, more than ${maxBytes}`)
  const file = join(folder, `${name}.png`)
  await writeFile(file, picture)
  return file
}

/** Waits until the view has all its data. The stream of charges keeps the network busy meanwhile. */
async function awaitData(page: Page): Promise<void> {
  const loading = page.getByRole('status', { name: 'Loading' })
  for (let waited = 0; waited < waitMs; waited += 100) {
    if ((await loading.count()) === 0) return
    await sleep(100)
  }
  throw new Error('the view did not load')
}

/** Creates users with credit, and sends their tickets of the last days. */
async function sendMonth(service: Quickstart): Promise<void> {
  const { platformUrl, clientId, m2mClientId, m2mClientSecret } = service
  const authorization = basic(m2mClientId, m2mClientSecret)
  const api = createAppApi({ platformUrl, clientId, authorization })
  for (const person of people) {
    await api.createUser(person)
    await api.grant(person, creditUsdMicros)
  }
  const now = Date.now()
  let sent = 0
  for (let day = days - 1; day >= 0; day--) {
    const events = people.flatMap((person, index) =>
      ticketsOf({ clientId, person, index, day, at: now - day * dayMs - (index + 1) * 600_000 }),
    )
    for (const event of events) await push(service, event)
    sent += events.length
  }
  await awaitTickets(service, authorization, { at: now, count: sent })
}

/** A number of 16 bits that is the same at each run. */
const noise = (seed: number): number => Math.imul(seed + 1, 2_654_435_761) >>> 16

interface PersonDay {
  readonly clientId: string
  readonly person: string
  readonly index: number
  readonly day: number
  readonly at: number
}

/** Returns the tickets of a person on a day; the same at each run, and more on later days. */
function ticketsOf({ clientId, person, index, day, at }: PersonDay): object[] {
  const count = 1 + (noise(day * 8 + index) % 5) + Math.floor((days - day) / 8)
  const model = models[(day + index) % models.length] ?? models[0]
  const session = (day * 16 + index + 0x9f860000).toString(16)
  return Array.from({ length: count }, (_, sequence) => {
    const signedAt = at + sequence * 5_000
    const gwei = 20_000 + (noise(day * 64 + index * 8 + sequence) % 60_000)
    return {
      id: `picture-${session}-${sequence}`,
      type: 'create_signed_ticket',
      timestamp: `${signedAt}`,
      gateway: '',
      data: {
        ...model,
        auth_id: `${clientId}:${person}`,
        billable_secs: 5,
        computed_fee: `${gwei}000000000`,
        cost: `${gwei}000000000`,
        current_time: new Date(signedAt).toISOString(),
        current_time_unix: signedAt,
        manifest_id: session,
        num_tickets: 1,
        orch_address: '0x5b',
        orch_url: 'https://orchestrator.example',
        pixels: 0,
        pm_session_id: '0x2b',
        request_id: `${session}${sequence}`,
        sequence_number: sequence,
        session_balance: '1',
        session_id: session,
        session_status: sequence === 0 ? 'new' : 'active',
      },
    }
  })
}

async function push({ sidecarUrl, webhookSecret }: Quickstart, event: object): Promise<void> {
  const { status } = await fetch(`${sidecarUrl}/events`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-webhook-secret': webhookSecret },
    body: JSON.stringify(event),
  })
  if (status !== 202) throw new Error(`the sidecar answered ${status} to an event`)
}

interface Expected {
  readonly at: number
  readonly count: number
}

async function awaitTickets(
  { platformUrl, clientId }: Quickstart,
  authorization: string,
  { at, count }: Expected,
): Promise<void> {
  const day = (instant: number): string => new Date(instant).toISOString().slice(0, 10)
  const query = new URLSearchParams({ startDate: day(at - days * dayMs), endDate: day(at) })
  const url = `${platformUrl}/api/v1/builder/apps/${clientId}/usage?${query.toString()}`
  for (let waited = 0; waited < waitMs; waited += 500) {
    const response = await fetch(url, { headers: { authorization } })
    const answer: { totals?: { requestCount: number } } = JSON.parse(await response.text())
    if ((answer.totals?.requestCount ?? 0) >= count) return
    await sleep(500)
  }
  throw new Error('the tickets did not arrive')
}
