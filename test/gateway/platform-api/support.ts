import { afterAll, beforeAll, beforeEach } from 'vitest'
import type { TestApp } from '../../core/support.ts'
import { type Person, logInTo } from '../../support/web/people.ts'
import { type Console, type RequestOptions, startConsole } from '../console.ts'

export let console: Console
export let app: TestApp
/** A member of the app. */
export let person: Person

type Role = Parameters<typeof logInTo>[2]

/** Starts the gateway with a real core, and creates an app with a member for each test. */
export function setUpApp(role: Role): void {
  beforeAll(() => openConsole())
  afterAll(() => console.stop())
  beforeEach(() => openApp(role))
}

export async function openConsole(options?: Parameters<typeof startConsole>[0]): Promise<void> {
  console = await startConsole(options)
}

export async function openApp(
  role: Role,
  options?: Parameters<Console['newApp']>[0],
): Promise<void> {
  app = await console.newApp(options)
  person = await logInTo(console, app, role)
}

/** Sends a request to a path of the app, by default as its member. */
export const ask = (method: string, path: string, request: RequestOptions = { person }) =>
  console.ask(method, `/api/v1/apps/${app.clientId}${path}`, request)
export const status = async (method: string, path: string, request?: RequestOptions) =>
  (await ask(method, path, request)).status
