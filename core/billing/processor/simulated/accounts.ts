import { DomainError } from '../../../../proto/errors.ts'
import { later } from '../../../shared/clocks/clocks.ts'
import type { AccountState, PaymentProcessor } from '../port.ts'
import * as store from './store.ts'
import type { SimulatedObject } from './store.ts'
import { type SimulatedDeps, type Writes, findIn, newId, read, requireAccount } from './writes.ts'

const linkMs = 5 * 60_000

type AccountCalls = Pick<PaymentProcessor, 'createAccount' | 'createOnboardingUrl' | 'readAccount'>

/** Accounts of the simulated processor: the calls of the port. Accounts are objects of the platform. */
export function createAccounts(
  { pool, now, publicUrl }: SimulatedDeps,
  { createOnce, write }: Writes,
): AccountCalls {
  return {
    createAccount: async (plane, { reference, email }, key) => {
      const { id } = await createOnce(
        'account',
        { at: { plane, account: null }, key, request: { reference, email } },
        async () => ({
          reference,
          email,
          chargesEnabled: false,
          payoutsEnabled: false,
          detailsSubmitted: false,
          isEnded: false,
        }),
      )
      return { id }
    },

    createOnboardingUrl: async (at, urls) => {
      const [id, createdAt] = [newId('link'), now()]
      const account = at.account ?? ''
      const expiresAt = later(createdAt, linkMs).toISOString()
      await write(async ({ db }) => {
        await requireAccount(db, { ...at, account }, { charges: false })
        const data = { account, ...urls, expiresAt }
        await store.insertObject(db, 'link', { id, at, data, createdAt })
      })
      return { url: `${publicUrl}/pay/accounts/${account}?link=${id}` }
    },

    readAccount: async ({ plane, account }): Promise<AccountState | null> => {
      const at = { plane, account: null }
      const existing = await read(findIn(pool, 'account', { at, id: account ?? '' }))
      if (existing === null || existing.data.isEnded) return null
      const { chargesEnabled, payoutsEnabled, detailsSubmitted } = existing.data
      return { chargesEnabled, payoutsEnabled, detailsSubmitted }
    },
  }
}

/** What the owner does on the page of an account. */
export const onboardingActions = ['complete', 'submit', 'end'] as const
export type OnboardingAction = (typeof onboardingActions)[number]

export interface Onboarding {
  readonly account: SimulatedObject<'account'>
  readonly returnUrl: string
  readonly refreshUrl: string
  /** Whether the link has expired; `refreshUrl` leads to a new one. */
  readonly isExpired: boolean
}

/** The page of an account, for the holder of a link to it. */
export function createOnboarding({ pool, now }: SimulatedDeps, { write }: Writes) {
  /** Throws NOT_FOUND if the link is not of this account. */
  async function find(accountId: string, linkId: string): Promise<Onboarding> {
    const link = await read(store.findObject(pool, 'link', linkId))
    const account = await read(store.findObject(pool, 'account', accountId))
    if (link === null || account === null || link.data.account !== accountId)
      throw new DomainError('NOT_FOUND', 'there is no such link; start the connection again')
    const { returnUrl, refreshUrl, expiresAt } = link.data
    return { account, returnUrl, refreshUrl, isExpired: new Date(expiresAt) <= now() }
  }

  /** Returns the address that the owner goes on to. Changes nothing by an expired link. */
  async function act(
    accountId: string,
    linkId: string,
    action: OnboardingAction,
  ): Promise<{ readonly url: string }> {
    const { isExpired, returnUrl, refreshUrl } = await find(accountId, linkId)
    if (isExpired) return { url: refreshUrl }
    await write(async ({ db, emit }) => {
      const account = await store.lockObject(db, 'account', accountId)
      if (account === null || account.data.isEnded) return
      await store.updateObject(db, { id: accountId, data: { ...account.data, ...changes[action] } })
      await emit({
        at: { plane: account.at.plane, account: accountId },
        subject: 'account',
        type: action === 'end' ? 'account.deauthorized' : 'account.updated',
        objectId: accountId,
        isDeauthorization: action === 'end',
      })
    })
    return { url: returnUrl }
  }

  return { find, act }
}

const changes = {
  complete: { chargesEnabled: true, payoutsEnabled: true, detailsSubmitted: true },
  submit: { detailsSubmitted: true },
  end: { isEnded: true },
}
