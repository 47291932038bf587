import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { type LimitedRef, type UserRef, keysQuery, limitsQuery } from '../api/users.ts'
import { Micros } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'
import { useClearLimits } from './changes.ts'
import { EditLimits } from './edit-limits.tsx'

const from = '/$clientId/users/$externalUserId'

type LimitsData = Schemas['Limits']

interface LimitsProps {
  readonly user: UserRef
  readonly canEdit: boolean
}

/** Limits of a user's calls, or of the calls of one key, which the signer webhook keeps. */
export function Limits({ user, canEdit }: LimitsProps): ReactNode {
  const { key: keyId } = useSearch({ from })
  const limited = keyId === undefined ? user : { ...user, keyId }
  const limits = useQuery(limitsQuery(limited))
  return (
    <>
      <KeyChoice user={user} keyId={keyId} />
      <Answer query={limits} rows={3}>
        {(data) => (
          <>
            <section className="card" aria-labelledby="limits">
              <h2 id="limits">{keyId === undefined ? 'Limits' : 'Limits of the key'}</h2>
              {hasLimit(data) ? (
                <Facts limits={data} />
              ) : (
                <Empty>
                  {keyId === undefined
                    ? 'No limit is set. The user may spend the whole balance at any speed.'
                    : 'The key has no limit of its own. Those of the user apply.'}
                </Empty>
              )}
              {canEdit && hasLimit(data) && <Clearing limited={limited} />}
            </section>
            {canEdit && <EditLimits key={keyId ?? ''} user={limited} limits={data} />}
          </>
        )}
      </Answer>
    </>
  )
}

interface KeyChoiceProps {
  readonly user: UserRef
  readonly keyId: string | undefined
}

/** Chooses the user or one of its keys. */
function KeyChoice({ user, keyId }: KeyChoiceProps): ReactNode {
  const navigate = useNavigate({ from })
  const keys = useInfiniteQuery(keysQuery(user))
  const working = (keys.data?.pages ?? [])
    .flatMap((page) => page.keys)
    .filter((key) => key.revokedAt === null || key.keyId === keyId)
  if (working.length === 0 && keyId === undefined) return null
  return (
    <div className="row">
      <label>
        Limits of
        <select
          value={keyId ?? ''}
          onChange={({ target }) => {
            const key = target.value === '' ? {} : { key: target.value }
            void navigate({ search: { part: 'limits', ...key } })
          }}
        >
          <option value="">the user, with all keys</option>
          {keyId !== undefined && !working.some((key) => key.keyId === keyId) && (
            <option>{keyId}</option>
          )}
          {working.map((key) => (
            <option key={key.keyId} value={key.keyId}>
              the key {key.label ?? `${key.prefix}…`}
            </option>
          ))}
        </select>
      </label>
      <More query={keys} label="Show more keys" />
    </div>
  )
}

const hasLimit = ({ maxPrices, ...figures }: LimitsData): boolean =>
  maxPrices.length > 0 || Object.values(figures).some((figure) => figure !== null)

function Facts({ limits }: { limits: LimitsData }): ReactNode {
  const { usdMicrosPerDay, usdMicrosPerSession, callsPerMinute, concurrentSessions } = limits
  const rows: readonly (readonly [string, ReactNode])[] = [
    ['Spent on a day (UTC)', toAmount(usdMicrosPerDay)],
    ['Spent in one session', toAmount(usdMicrosPerSession)],
    ['Calls in a minute', toCount(callsPerMinute)],
    ['Sessions at the same time', toCount(concurrentSessions)],
  ]
  return (
    <dl className="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      {limits.maxPrices.map(({ type, app, maxWei }) => (
        <div key={`${type} ${app}`}>
          <dt>
            Highest price, {type} {app !== null && <Name>{app}</Name>}
          </dt>
          <dd>
            {BigInt(maxWei).toLocaleString('en-US')} wei for one {units[type]}
          </dd>
        </div>
      ))}
    </dl>
  )
}

const units = { live: 'second', lv2v: '720p pixel second', fixed: 'unit' }

const toAmount = (micros: string | null): ReactNode =>
  micros === null ? 'no limit' : <Micros value={micros} />
const toCount = (count: number | null): string => (count === null ? 'no limit' : formatCount(count))

function Clearing({ limited }: { limited: LimitedRef }): ReactNode {
  const [isAsking, setIsAsking] = useState(false)
  const clear = useClearLimits(limited)
  const close = (): void => setIsAsking(false)
  return (
    <div>
      <Button kind="danger" onClick={() => setIsAsking(true)}>
        Remove all limits
      </Button>
      {isAsking && (
        <Confirm
          title="Remove all limits?"
          effect={
            limited.keyId === undefined
              ? 'The user may then spend the whole balance at any speed. Limits of single keys stay.'
              : 'Only the limits of the user then apply to the key.'
          }
          action="Remove all limits"
          isBusy={clear.isPending}
          error={clear.error}
          onConfirm={() => clear.mutate(undefined, { onSuccess: close })}
          onClose={close}
        />
      )}
    </div>
  )
}
