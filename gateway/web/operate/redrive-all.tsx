import { type ReactNode, useState } from 'react'
import { formatCount } from '../ui/amounts.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Failure } from '../ui/states.tsx'
import type { BulkRedrive, Progress } from './bulk-redrive.ts'

interface RedriveAllProps {
  readonly reason: string
  readonly count: number
  readonly bulk: BulkRedrive
}

/** Redrives all events with a reason, after a confirmation. */
export function RedriveAll({ reason, count, bulk }: RedriveAllProps): ReactNode {
  const [isAsked, setIsAsked] = useState(false)
  return (
    <>
      <Button
        isSmall
        disabled={bulk.isRunning}
        onClick={() => setIsAsked(true)}
        aria-label={`Redrive all of ${reason}`}
      >
        Redrive all
      </Button>
      {isAsked && (
        <Confirm
          title={`Redrive ${formatCount(count)} events?`}
          effect={`Every open event with the reason ${reason} is ingested as if it arrived now. Those that become tickets are charged to their users, once. The others stay here.`}
          action="Redrive all"
          isBusy={false}
          error={null}
          onConfirm={() => {
            setIsAsked(false)
            bulk.start(reason, count)
          }}
          onClose={() => setIsAsked(false)}
        />
      )}
    </>
  )
}

/** How far a redrive of many events has come, and its result. Nothing shows before the first. */
export function BulkReport({ bulk }: { bulk: BulkRedrive }): ReactNode {
  const { progress, error, isRunning, stop } = bulk
  if (progress === null) return null
  return (
    <section className="card" aria-labelledby="bulk">
      <h2 id="bulk">Redrive of {progress.reason}</h2>
      <Result progress={progress} isRunning={isRunning} />
      {isRunning && (
        <div>
          <Button onClick={stop}>Stop</Button>
        </div>
      )}
      {error && <Failure error={error} />}
    </section>
  )
}

const Result = ({ progress, isRunning }: { progress: Progress; isRunning: boolean }): ReactNode => {
  const { redriven, left, problems, count, isDone } = progress
  const seen = redriven + left
  return (
    <>
      {isRunning && <progress aria-label="Progress" value={seen} max={Math.max(count, seen, 1)} />}
      <p role="status">
        {formatCount(redriven)} became tickets, {formatCount(left)} stay
        {!isRunning && !isDone && ' (stopped)'}.
      </p>
      {problems.length > 0 && (
        <details>
          <summary>Why they stay</summary>
          <ul>
            {problems.map(({ id, problem }) => (
              <li key={id}>{problem}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  )
}
