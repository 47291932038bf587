import { Stripe } from 'stripe'
import { DomainError } from '../../../../proto/errors.ts'
import { createKeyedSemaphore } from '../../../lib/concurrency.ts'
import { type Live, deriveLive } from '../../../lib/settings/reloadable.ts'
import type { StripeConfig } from '../config.ts'
import type { Plane, ProcessorAccount } from '../port.ts'
import { isStripeError, processorError, unclearAnswer } from './errors.ts'
import { connectionsMax, createHttpClient } from './http.ts'

/** The version of Stripe's API, pinned so that answers do not change with the Stripe account. */
const apiVersion = '2026-10-28.endive'
const waitingMax = 448

type Send<T> = (stripe: Stripe, options: Stripe.RequestOptions) => Promise<T>

export interface RequestOptions<T> {
  /** The idempotency key, passed as it is. */
  readonly key?: string
  /** Returns the result of a failure that is an answer; undefined if it is none. */
  readonly recover?: (error: Stripe.errors.StripeError) => T | undefined
}

/** One client of the SDK per plane that has a key. */
export function createStripeClient(config: StripeConfig) {
  const clients = new Map<Plane, Live<Stripe>>()
  for (const plane of ['live', 'test'] as const) {
    const secretKey = config[plane]?.secretKey
    if (secretKey)
      clients.set(
        plane,
        deriveLive(secretKey, (key) => openClient(key, config)),
      )
  }
  // Requests wait here and not for a connection, where Node could send them long after their caller
  // was told that they failed.
  const places = createKeyedSemaphore({
    running: connectionsMax,
    waiting: waitingMax,
    refusal: tooMany,
  })

  function clientOf(plane: Plane): Stripe {
    const stripe = clients.get(plane)?.()
    if (stripe) return stripe
    const setting = plane === 'live' ? 'STRIPE_SECRET_KEY' : 'STRIPE_TEST_SECRET_KEY'
    throw new DomainError(
      'PROCESSOR_NOT_CONFIGURED',
      `this deployment takes no ${plane} payments: ${setting} is not set`,
    )
  }

  /** Sends a request to the account of `at`. Every failure is an error of the port. */
  async function request<T>(
    at: ProcessorAccount,
    send: Send<T>,
    { key, recover }: RequestOptions<T> = {},
  ): Promise<T> {
    const stripe = clientOf(at.plane)
    const since = performance.now()
    const leave = await places.enter(at.plane)
    try {
      if (performance.now() - since > config.timeoutMs) throw tooMany()
      const options: Stripe.RequestOptions = {
        ...(at.account === null ? {} : { stripeAccount: at.account }),
        ...(key === undefined ? {} : { idempotencyKey: key }),
      }
      return await send(stripe, options)
    } catch (error) {
      const answer = isStripeError(error) ? recover?.(error) : undefined
      if (answer !== undefined) return answer
      throw processorError(error)
    } finally {
      leave()
    }
  }

  return { planes: [...clients.keys()], request }
}

const tooMany = (): DomainError =>
  new DomainError('PROCESSOR_UNREACHABLE', 'too many payment requests are running; try again')

export type StripeClient = ReturnType<typeof createStripeClient>

function openClient(secretKey: string, { apiUrl, timeoutMs }: StripeConfig): Stripe {
  const url = new URL(apiUrl ?? 'https://api.stripe.com')
  const protocol = url.protocol === 'http:' ? 'http' : 'https'
  return new Stripe(secretKey, {
    apiVersion,
    protocol,
    host: url.hostname,
    port: url.port || (protocol === 'http' ? 80 : 443),
    httpClient: createHttpClient(protocol),
    timeout: timeoutMs,
    maxNetworkRetries: 1,
    telemetry: false,
  })
}

/** Returns `answer` if it is an object of the wanted type; the SDK itself checks nothing. */
export function expectObject<T extends { readonly object: string }>(
  answer: T,
  type: T['object'],
): T {
  const value: unknown = answer
  if (typeof value === 'object' && value !== null && 'object' in value && value.object === type)
    return answer
  throw unclearAnswer(new Error(`expected an object of type ${type}`))
}

const pageSize = 100
const pagesMax = 10

/** Reads all pages of a list, newest first. A list of more than 1,000 objects is an error. */
export async function readPages<T extends { readonly id: string }>(
  read: (page: { limit: number; starting_after?: string }) => Promise<Stripe.ApiList<T>>,
): Promise<T[]> {
  const objects: T[] = []
  for (let page = 0; page < pagesMax; page++) {
    const last = objects.at(-1)
    const answer = await read({
      limit: pageSize,
      ...(last === undefined ? {} : { starting_after: last.id }),
    })
    objects.push(...expectObject(answer, 'list').data)
    if (!answer.has_more) return objects
  }
  throw unclearAnswer(new Error(`more than ${pagesMax * pageSize} objects`))
}

/** The id of a field that may be expanded. */
export function readId(field: string | { readonly id: string } | null | undefined): string | null {
  return typeof field === 'string' ? field : (field?.id ?? null)
}
