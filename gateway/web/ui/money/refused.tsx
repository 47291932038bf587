import type { ReactNode } from 'react'
import type { Schemas } from '../../api/client.ts'

type Refusal = NonNullable<Schemas['Balance']['spendRefusal']>

/** Who reads: the user, or a member of the app. */
type Reader = 'user' | 'member'

const titles = {
  user: 'Your calls are refused.',
  member: 'Calls of this user are refused.',
} as const

const refusals: Readonly<Record<Refusal, Readonly<Record<Reader, string>>>> = {
  insufficient_balance: {
    user: 'Nothing is left.',
    member: 'Nothing is left. Give credit, or change the plan.',
  },
  no_payment_method: {
    user: 'Nothing is left, and no card is on file to spend on credit.',
    member:
      'Nothing is left, and the plan lets the user spend on credit only with a payment method.',
  },
  debt_ceiling_reached: {
    user: 'Your unpaid usage has reached its ceiling.',
    member: 'Unpaid usage has reached its ceiling. It is paid by the next collection.',
  },
  owner_debt_ceiling_reached: {
    user: 'The app’s owner, who pays, has too little left.',
    member: 'The account of the app’s owner, which pays, has too little left.',
  },
}

interface RefusedProps {
  readonly refusal: Refusal | null | undefined
  readonly reader: Reader
}

/** Why a user's calls are refused. */
export const Refused = ({ refusal, reader }: RefusedProps): ReactNode => (
  <p className="problem">
    <span>
      <strong>{titles[reader]}</strong>{' '}
      {refusal && (
        <>
          {refusals[refusal][reader]}{' '}
          <a href={`/errors/${refusal}`}>
            About <code>{refusal}</code>
          </a>
        </>
      )}
    </span>
  </p>
)
