import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useState, useSyncExternalStore } from 'react'
import { sessionQuery } from '../../api/queries.ts'
import { type Charge, streamAddress } from '../../api/usage.ts'
import { toAttos } from '../attos.ts'
import { type Second, addSeconds } from './minute.ts'

/** The live charges of an app in the browser: at most fifty rows and sixty seconds. */

export type LiveState = 'connecting' | 'live' | 'reconnecting' | 'paused' | 'hidden'

export interface LiveCharge extends Charge {
  readonly key: string
}

interface Received {
  /** Newest first. */
  readonly charges: readonly LiveCharge[]
  readonly minute: readonly Second[]
  /** Unix seconds from which on `minute` is complete; null before the stream opens. */
  readonly since: number | null
  /** Whether charges between were lost: the stream was interrupted for too long. */
  readonly hasGap: boolean
}

export const rowsMax = 50
const nothing: Received = { charges: [], minute: [], since: null, hasGap: false }
/** Charges are shown in batches, so that a busy app does not draw for each one. */
const drawMs = 200
const keysMax = 1_000
const retryMs = 10_000
const retryMaxMs = 300_000

/** Follows charges while the view shows. The stream closes when it is paused, hidden or left. */
export function useLive(clientId: string, user: string | undefined, isPaused: boolean) {
  const address = streamAddress(clientId, user)
  const isVisible = useSyncExternalStore(watchVisibility, () => !document.hidden)
  const [received, setReceived] = useState(nothing)
  const [connection, setConnection] = useState<'connecting' | 'live' | 'reconnecting'>('connecting')
  const client = useQueryClient()
  useEffect(() => setReceived(nothing), [address])
  useEffect(() => {
    if (isPaused || !isVisible) return undefined
    setConnection('connecting')
    return follow(address, {
      onState: setConnection,
      onReceive: (change) => setReceived(change),
      // A refusal may mean that the session has ended; then the frame shows it.
      onRefused: () => void client.invalidateQueries({ queryKey: sessionQuery.queryKey }),
    })
  }, [address, isPaused, isVisible, client])
  const state: LiveState = isPaused ? 'paused' : isVisible ? connection : 'hidden'
  return { ...received, state }
}

interface Listener {
  onState(state: 'live' | 'reconnecting'): void
  onReceive(change: (earlier: Received) => Received): void
  onRefused(): void
}

/** Opens the stream, and again when it was refused; returns a function that closes it for good. */
function follow(address: string, listener: Listener): () => void {
  let source: EventSource
  let timer: ReturnType<typeof setTimeout> | undefined
  let delayMs = retryMs
  const batch = createBatch(listener)
  const open = (): void => {
    source = new EventSource(address)
    // A new source has no Last-Event-ID, so charges from before are missing.
    source.addEventListener('open', () => listener.onReceive(beginMinute), { once: true })
    source.addEventListener('open', () => {
      delayMs = retryMs
      listener.onState('live')
    })
    source.addEventListener('charge', ({ data }: MessageEvent<string>) => batch.add(data))
    source.addEventListener('reset', () =>
      listener.onReceive((earlier) => ({ ...earlier, hasGap: true })),
    )
    source.addEventListener('error', () => {
      listener.onState('reconnecting')
      // The browser itself reconnects after an interruption, but not after a refusal.
      if (source.readyState !== EventSource.CLOSED) return
      listener.onRefused()
      timer = setTimeout(open, delayMs)
      delayMs = Math.min(delayMs * 2, retryMaxMs)
    })
  }
  open()
  return () => {
    clearTimeout(timer)
    batch.stop()
    source.close()
  }
}

const beginMinute = (earlier: Received): Received => ({
  ...earlier,
  minute: [],
  since: Math.floor(Date.now() / 1_000),
})

/** Collects charges for a moment, and drops all but the newest rows. */
function createBatch({ onReceive }: Listener) {
  const isRepeated = createRepetitionCheck()
  let fresh: LiveCharge[] = []
  let minute: Second[] = []
  let timer: ReturnType<typeof setTimeout> | undefined
  let clockAheadMs = Infinity
  const draw = (): void => {
    timer = undefined
    const [newest, sums] = [fresh.toReversed(), minute]
    fresh = []
    minute = []
    onReceive((earlier) => ({
      ...earlier,
      charges: [...newest, ...earlier.charges].slice(0, rowsMax),
      minute: addSeconds(earlier.minute, sums),
    }))
  }
  return {
    add(data: string): void {
      const charge: Charge = JSON.parse(data)
      const key = `${charge.endUserId} ${charge.chargeId}`
      if (isRepeated(key)) return
      const bookedAt = Date.parse(charge.time)
      // The fastest event shows best how far this clock is ahead of the server's.
      clockAheadMs = Math.min(clockAheadMs, Date.now() - bookedAt)
      const second = {
        at: Math.floor((bookedAt + clockAheadMs) / 1_000),
        tickets: charge.ticketCount,
        attos: toAttos(charge.costUsdExact),
      }
      minute = addSeconds(minute, [second])
      fresh = [...fresh, { ...charge, key }].slice(-rowsMax)
      timer ??= setTimeout(draw, drawMs)
    },
    /** Shows what has arrived, and waits no longer. */
    stop(): void {
      if (timer === undefined) return
      clearTimeout(timer)
      draw()
    },
  }
}

/** A stream that goes on after an interruption may repeat events. Remembers a thousand. */
function createRepetitionCheck(): (key: string) => boolean {
  const keys = new Set<string>()
  return (key) => {
    if (keys.has(key)) return true
    keys.add(key)
    const [oldest] = keys
    if (keys.size > keysMax && oldest !== undefined) keys.delete(oldest)
    return false
  }
}

function watchVisibility(onChange: () => void): () => void {
  document.addEventListener('visibilitychange', onChange)
  return () => document.removeEventListener('visibilitychange', onChange)
}
