import type { ReactNode } from 'react'

/** `unknown` while it is read, or when that failed. */
export type StepState = 'done' | 'open' | 'waiting' | 'unknown'

const badges: Readonly<Record<StepState, readonly [text: string, className: string]>> = {
  done: ['Done', 'badge good'],
  open: ['To do', 'badge'],
  waiting: ['Waiting', 'badge warn'],
  unknown: ['…', 'badge'],
}

interface StepProps {
  /** From 1. */
  readonly number: number
  readonly title: string
  readonly state: StepState
  readonly children: ReactNode
}

/** One step of the set-up, with what is done already. */
export function Step({ number, title, state, children }: StepProps): ReactNode {
  const [text, className] = badges[state]
  return (
    <li>
      <section className="card" aria-labelledby={`step-${number}`}>
        <div className="head">
          <h2 id={`step-${number}`}>
            {number}. {title}
          </h2>
          <span className={className}>{text}</span>
        </div>
        {children}
      </section>
    </li>
  )
}
