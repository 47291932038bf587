import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { ApiError, type Schemas } from '../api/client.ts'
import { plansQuery } from '../api/plans.ts'
import type { UserRef } from '../api/users.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Copyable } from '../ui/shown-once.tsx'
import { Failure } from '../ui/states.tsx'
import { type Timing, useChangePlan } from './changes.ts'
import { useIdempotencyKey, useOneAtATime } from '../api/submission.ts'

interface ChangePlanProps {
  readonly user: UserRef
  readonly currentId: string | null
}

type PlanData = Schemas['Plan']
type When = Timing | 'either'

const timings: Readonly<Record<When, string>> = {
  either: 'at once if it costs more, else later',
  immediate: 'at once',
  next_billing_cycle: 'when the running period ends',
}

/** Moves a user to another plan. Asks before, because a card may be charged. */
export function ChangePlan({ user, currentId }: ChangePlanProps): ReactNode {
  const plans = useQuery(plansQuery(user.clientId))
  const [wanted, setWanted] = useState('')
  const [when, setWhen] = useState<When>('either')
  /** The plan in the dialog. The list loses it as soon as the user is on it. */
  const [asked, setAsked] = useState<PlanData | null>(null)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const [result, setResult] = useState<Schemas['SubscriptionChange'] | null>(null)
  const choices = (plans.data ?? []).filter((each) => isChoice(each) && each.id !== currentId)
  const plan = choices.find(({ id }) => id === wanted)
  /** Another choice is another change, so that it needs another key. */
  const edit = (change: () => void): void => {
    change()
    renewKey()
  }
  if (plans.error) return <Failure error={plans.error} retry={() => void plans.refetch()} />
  return (
    <>
      {plans.data && choices.length === 0 ? (
        <p className="soft">The app has no other active plan to change to.</p>
      ) : (
        <form
          className="row"
          onSubmit={(event) => {
            event.preventDefault()
            setAsked(plan ?? null)
          }}
        >
          <label>
            Change to
            <select
              required
              value={plan?.id ?? ''}
              onChange={(event) => edit(() => setWanted(event.target.value))}
            >
              <option value="">choose a plan</option>
              {choices.map((each) => (
                <option key={each.id} value={each.id}>
                  {describePlan(each)}
                </option>
              ))}
            </select>
          </label>
          <label>
            When
            <select
              value={when}
              onChange={(event) => edit(() => setWhen(toWhen(event.target.value)))}
            >
              {Object.entries(timings).map(([value, text]) => (
                <option key={value} value={value}>
                  {text}
                </option>
              ))}
            </select>
          </label>
          <Button type="submit" disabled={plan === undefined}>
            Change the plan
          </Button>
        </form>
      )}
      {result && <Result result={result} />}
      {asked && (
        <Change
          user={user}
          plan={asked}
          when={when}
          idempotencyKey={idempotencyKey}
          onDone={(change) => {
            setResult(change)
            edit(() => setWanted(''))
          }}
          onDeclined={renewKey}
          onClose={() => setAsked(null)}
        />
      )}
    </>
  )
}

/** Network Price only shows prices, and a user comes to Starter by ending its plan. */
const isChoice = ({ status, isNetworkDefault, isStarterDefault }: PlanData): boolean =>
  status === 'active' && !isNetworkDefault && !isStarterDefault

const toWhen = (text: string): When =>
  text === 'immediate' || text === 'next_billing_cycle' ? text : 'either'

const describePlan = ({
  name,
  type,
  priceAmount,
  priceCurrency,
  billingCycle,
}: PlanData): string =>
  type === 'free'
    ? `${name} (free)`
    : `${name} (${priceAmount} ${priceCurrency}, ${billingCycle}${type === 'usage' ? ', by usage' : ''})`

interface ChangeProps {
  readonly user: UserRef
  readonly plan: PlanData
  readonly when: When
  readonly idempotencyKey: string
  readonly onDone: (change: Schemas['SubscriptionChange']) => void
  readonly onDeclined: () => void
  readonly onClose: () => void
}

function Change(props: ChangeProps): ReactNode {
  const { user, plan, when, idempotencyKey, onDone, onDeclined, onClose } = props
  const change = useChangePlan(user)
  const submit = useOneAtATime()
  return (
    <Confirm
      title="Change the plan?"
      effect={
        <>
          The user moves to <Name>{plan.name}</Name> {timings[when]}. If the plan has a price, the
          user’s card is charged for the first period; without a card the plan stays, and you get an
          address at which the user pays.
        </>
      }
      action="Change the plan"
      isBusy={change.isPending}
      error={change.error}
      onConfirm={() =>
        submit((onSettled) =>
          change.mutate(
            { planId: plan.id, idempotencyKey, ...(when !== 'either' && { timing: when }) },
            {
              onSuccess: (answer) => {
                onDone(answer)
                onClose()
              },
              // The service repeats a declined charge's result for its key.
              onError: (error) => {
                if (error instanceof ApiError && error.status === 402) onDeclined()
              },
              onSettled,
            },
          ),
        )
      }
      onClose={onClose}
    />
  )
}

function Result({ result }: { result: Schemas['SubscriptionChange'] }): ReactNode {
  const { checkoutUrl, effectiveAt } = result
  if (checkoutUrl !== undefined)
    return (
      <div className="notice" role="status">
        <p>The plan stays until the user has added a payment method. Send the user this address:</p>
        <Copyable text={checkoutUrl} />
      </div>
    )
  return (
    <p role="status">
      {effectiveAt === null ? (
        'Nothing was changed.'
      ) : (
        <>
          Changed, with effect at <Instant at={effectiveAt} />.
        </>
      )}
    </p>
  )
}
