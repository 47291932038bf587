import type { ReactNode } from 'react'
import { ApiError } from '../api/client.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Empty } from '../ui/states.tsx'

const refetch = (): void => undefined
const refusal = (message: string, status: number, code: string): Error =>
  new ApiError(message, { status, code, correlationId: '0b7e-sample' })

/** The answers that a query can have. */
const answers: readonly {
  readonly title: string
  readonly data?: readonly string[]
  readonly error?: Error
}[] = [
  { title: 'Loading' },
  { title: 'Empty', data: [] },
  { title: 'Data', data: ['ada', 'grace'] },
  {
    title: 'No permission',
    error: refusal('Your role in this app does not permit it.', 403, 'edit_forbidden'),
  },
  {
    title: 'Session ended',
    error: refusal('The session has ended.', 401, 'credential_invalid'),
  },
  {
    title: 'Failed again, with the data read before',
    data: ['ada'],
    error: refusal('The service has an internal error.', 500, 'internal'),
  },
]

export const States = (): ReactNode => (
  <>
    {answers.map(({ title, data, error = null }, index) => (
      <section className="card" key={title} aria-labelledby={`state-${index}`}>
        <h2 id={`state-${index}`}>{title}</h2>
        <Answer query={{ data, error, refetch }} rows={2}>
          {(names) =>
            names.length === 0 ? (
              <Empty>
                <p>No user was created yet.</p>
                <Button>Create a user</Button>
              </Empty>
            ) : (
              <ul className="list">
                {names.map((name) => (
                  <li key={name}>{name}</li>
                ))}
              </ul>
            )
          }
        </Answer>
      </section>
    ))}
    <p className="notice">A warning about the data of this view.</p>
  </>
)
