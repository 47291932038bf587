import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { type UserRef, limitsQuery } from '../api/users.ts'
import { Micros } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'
import { useClearLimits } from './changes.ts'
import { EditLimits } from './edit-limits.tsx'

type LimitsData = Schemas['Limits']

interface LimitsProps {
  readonly user: UserRef
  readonly canEdit: boolean
}

/** Limits of a user's calls, which the signer webhook keeps. */
export function Limits({ user, canEdit }: LimitsProps): ReactNode {
  const limits = useQuery(limitsQuery(user))
  return (
    <Answer query={limits} rows={3}>
      {(data) => (
        <>
          <section className="card" aria-labelledby="limits">
            <h2 id="limits">Limits</h2>
            {hasLimit(data) ? (
              <Facts limits={data} />
            ) : (
              <Empty>No limit is set. The user may spend the whole balance at any speed.</Empty>
            )}
            {canEdit && hasLimit(data) && <Clearing user={user} />}
          </section>
          {canEdit && <EditLimits key={user.externalUserId} user={user} limits={data} />}
        </>
      )}
    </Answer>
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

function Clearing({ user }: { user: UserRef }): ReactNode {
  const [isAsking, setIsAsking] = useState(false)
  const clear = useClearLimits(user)
  const close = (): void => setIsAsking(false)
  return (
    <div>
      <Button kind="danger" onClick={() => setIsAsking(true)}>
        Remove all limits
      </Button>
      {isAsking && (
        <Confirm
          title="Remove all limits?"
          effect="The user may then spend the whole balance at any speed. Limits of single keys stay."
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
