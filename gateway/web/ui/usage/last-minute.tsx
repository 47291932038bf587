import { type ReactNode, useEffect, useState } from 'react'
import { Attos } from '../amount.tsx'
import { formatCount } from '../amounts.ts'
import { Instant } from '../instant.tsx'
import { type LiveState, useLive } from './live-stream.ts'
import { type Second, seconds, sumMinute } from './minute.ts'

const states: Readonly<Record<LiveState, readonly [text: string, className: string]>> = {
  connecting: ['Connecting …', 'badge'],
  live: ['Live', 'badge good'],
  reconnecting: ['Reconnecting …', 'badge warn'],
  paused: ['Paused', 'badge'],
  hidden: ['Paused while hidden', 'badge'],
}

/** The state of the stream of charges. */
export function Connection({ state }: { state: LiveState }): ReactNode {
  const [text, className] = states[state]
  return (
    <span className={className} role="status" aria-label="Connection">
      {text}
    </span>
  )
}

/** What the app spends now, to the second. */
export function LastMinute({ clientId }: { clientId: string }): ReactNode {
  const { state, minute, since } = useLive(clientId, undefined, false)
  return (
    <section className="card" aria-labelledby="now">
      <div className="head">
        <h2 id="now">Now</h2>
        <Connection state={state} />
      </div>
      <Minute minute={minute} since={since} isRunning={state === 'live'} />
    </section>
  )
}

/** The sums of the last sixty seconds, and their seconds as bars. */
export function Minute({
  minute,
  since,
  isRunning,
}: {
  minute: readonly Second[]
  since: number | null
  isRunning: boolean
}): ReactNode {
  const now = useSeconds(isRunning)
  const { recent, tickets, attos } = sumMinute(minute, now)
  const highest = recent.reduce((most, { attos: each }) => (each > most ? each : most), 1n)
  return (
    <div className="minute">
      <p>
        <strong>
          <Attos value={attos.toString()} />
        </strong>{' '}
        <span className="soft">
          billed to end users for {formatCount(tickets)} {tickets === 1 ? 'ticket' : 'tickets'}{' '}
          {since === null || now - since >= seconds ? (
            `in the last ${seconds} seconds`
          ) : (
            <>
              since <Instant at={new Date(since * 1_000).toISOString()} isTimeOnly />
            </>
          )}
        </span>
      </p>
      <svg viewBox={`0 0 ${seconds} 100`} preserveAspectRatio="none" aria-hidden="true">
        {recent.map(({ at, attos: each }) => {
          const size = Math.max(4, Number((each * 100n) / highest))
          return (
            <rect
              key={at}
              x={seconds - 1 - (now - at) + 0.1}
              y={100 - size}
              width={0.8}
              height={size}
            />
          )
        })}
      </svg>
    </div>
  )
}

const toSeconds = (): number => Math.floor(Date.now() / 1_000)

/** The time in seconds, which stops while nothing can arrive. */
function useSeconds(isRunning: boolean): number {
  const [now, setNow] = useState(toSeconds)
  useEffect(() => {
    setNow(toSeconds())
    if (!isRunning) return undefined
    const timer = setInterval(() => setNow(toSeconds()), 1_000)
    return () => clearInterval(timer)
  }, [isRunning])
  return now
}
