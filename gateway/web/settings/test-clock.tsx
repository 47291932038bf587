import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useAdvanceClock } from '../api/settings.ts'
import { testClockQuery } from '../api/usage.ts'
import { ExactDollars } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'

interface TestClockProps {
  readonly clientId: string
  readonly canEdit: boolean
}

const daySeconds = 86_400
const dayMax = 366

/** The clock of a test app, which members move ahead and never back. */
export function TestClock({ clientId, canEdit }: TestClockProps): ReactNode {
  const clock = useQuery(testClockQuery(clientId))
  return (
    <section className="card" aria-labelledby="test-clock">
      <h2 id="test-clock">Test clock</h2>
      <p className="soft">
        Periods, credits, plans and dates of tickets follow it. Keys, sessions and real payments do
        not.
      </p>
      <Answer query={clock} rows={2}>
        {({ now, aheadSeconds, latest }) => (
          <dl className="facts">
            <div>
              <dt>Time of the app</dt>
              <dd>
                <Instant at={now} />
              </dd>
            </div>
            <div>
              <dt>Ahead of real time</dt>
              <dd>{toAhead(aheadSeconds)}</dd>
            </div>
            <div>
              <dt>Can be moved to</dt>
              <dd>
                <Instant at={latest} />
              </dd>
            </div>
          </dl>
        )}
      </Answer>
      {canEdit && <Move clientId={clientId} />}
    </section>
  )
}

function toAhead(seconds: number): string {
  if (seconds === 0) return 'not at all'
  const days = Math.floor(seconds / daySeconds)
  const hours = Math.round((seconds % daySeconds) / 3_600)
  return `${formatCount(days)} days, ${hours} hours`
}

/** Asks for days, and moves the clock after the word was typed: it never goes back. */
function Move({ clientId }: { clientId: string }): ReactNode {
  const [days, setDays] = useState('1')
  const [isAsked, setIsAsked] = useState(false)
  const advance = useAdvanceClock(clientId)
  const count = Number(days)
  return (
    <>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          advance.reset()
          setIsAsked(true)
        }}
      >
        <label>
          Days
          <input
            type="number"
            required
            min={1}
            max={dayMax}
            step={1}
            value={days}
            onChange={(event) => setDays(event.target.value)}
          />
        </label>
        <Button type="submit">Move the clock ahead</Button>
      </form>
      {advance.data && <Effects moved={advance.data} />}
      {isAsked && (
        <Confirm
          title={`Move the clock ${count === 1 ? 'a day' : `${formatCount(count)} days`} ahead?`}
          effect="What becomes due by then is done: periods renew, credits end, plans change, and invoices are issued and charged at test cards. The clock cannot be moved back."
          action="Move the clock"
          typed="move"
          isBusy={advance.isPending}
          error={advance.error}
          onConfirm={() =>
            advance.mutate(count * daySeconds, { onSuccess: () => setIsAsked(false) })
          }
          onClose={() => setIsAsked(false)}
        />
      )}
    </>
  )
}

type Moved = Schemas['AdvancedTestClock']

/** What the move has done. */
function Effects({ moved: { to, pending, effects } }: { moved: Moved }): ReactNode {
  const rows: readonly (readonly [string, number])[] = [
    ['Periods renewed', effects.periodsRenewed],
    ['Credits ended', effects.creditsExpired],
    ['Plans changed', effects.subscriptionsSwitched],
    ['Credits of a raised Starter plan', effects.planAdjustments],
    ['Users over the threshold of a charge', effects.overThreshold],
    ['Invoices issued', effects.invoicesIssued],
    ['Payments that succeeded', effects.paymentsSucceeded],
    ['Payments that failed', effects.paymentsFailed],
  ]
  return (
    <div role="status" aria-label="Effects of the move" className="stack">
      <p>
        The clock is at <Instant at={to} />.{' '}
        {pending && 'Some due work is not done yet; the service finishes it.'}
      </p>
      <dl className="facts">
        {rows.map(([name, count]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{formatCount(count)}</dd>
          </div>
        ))}
        <div>
          <dt>Amount of the ended credits</dt>
          <dd>
            <ExactDollars value={effects.expiredUsdExact} />
          </dd>
        </div>
      </dl>
    </div>
  )
}
