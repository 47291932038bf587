import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { ApiError, type Schemas } from '../api/client.ts'
import {
  type OwnerAccount,
  type OwnerPlan,
  ownerAccountQuery,
  ownerPlansQuery,
  useTakeOwnerPlan,
} from './owner-account.ts'
import { useIdempotencyKey, useOneAtATime } from '../api/submission.ts'
import { Dollars, Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

interface OwnerPlansProps {
  readonly clientId: string
  /** The time of a payment that is waited for, or null. */
  readonly since: number | null
  /** The account's money, unless the view has it already. */
  readonly children?: ReactNode
}

/** What the owner of an app pays to the platform: the account of all its apps, and its plan. */
export function OwnerPlans({ clientId, since, children }: OwnerPlansProps): ReactNode {
  const account = useQuery(ownerAccountQuery(clientId, since))
  if (account.error instanceof ApiError && account.error.status === 403)
    return (
      <section className="card" aria-label="Your own account">
        <Empty>Another owner’s account pays for this app, and only that person sees it.</Empty>
      </section>
    )
  return (
    <Answer query={account} rows={6}>
      {(data) => (
        <>
          {children && (
            <section className="card" aria-labelledby="own-account">
              <h2 id="own-account">Your own account</h2>
              <p>
                Your users pay you, and you pay the platform from this account, for all your apps.
                When nothing is left in it, calls of your users are refused, too.
              </p>
            </section>
          )}
          {children}
          <Plan clientId={clientId} account={data} />
        </>
      )}
    </Answer>
  )
}

function Plan({ clientId, account }: { clientId: string; account: OwnerAccount }): ReactNode {
  const { scheduledPlan } = account
  return (
    <section className="card" aria-labelledby="owner-plan">
      <h2 id="owner-plan">Owner plan</h2>
      {scheduledPlan !== null && (
        <p className="notice">
          Changes to <Name>{scheduledPlan.name}</Name> at <Instant at={scheduledPlan.effectiveAt} />
          .
        </p>
      )}
      <Facts account={account} />
      <Choice clientId={clientId} account={account} />
    </section>
  )
}

function Facts({ account }: { account: OwnerAccount }): ReactNode {
  const { plan, subscription } = account
  return (
    <dl className="facts">
      <div>
        <dt>Your plan</dt>
        <dd>
          <Name>{plan?.name ?? 'Starter'}</Name>
        </dd>
      </div>
      <div>
        <dt>Plan includes</dt>
        <dd>{plan ? <Included micros={plan.includedUsdMicros} /> : 'as for new owners'}</dd>
      </div>
      <div>
        <dt>Left before you pay</dt>
        <dd>
          <Micros value={account.balanceUsdMicros} />
        </dd>
      </div>
      <div>
        <dt>Used beyond that</dt>
        <dd>
          <Micros value={account.overageUsdMicros} />
        </dd>
      </div>
      {subscription && (
        <div>
          <dt>Running period ends</dt>
          <dd>
            <Instant at={subscription.currentPeriodEnd} />
          </dd>
        </div>
      )}
    </dl>
  )
}

const Included = ({ micros }: { micros: string | null }): ReactNode =>
  micros === null ? <span className="soft">no usage</span> : <Micros value={micros} />

const isCurrent = ({ plan }: OwnerAccount, { id, isStarter }: OwnerPlan): boolean =>
  plan === null ? isStarter : plan.id === id

interface ChoiceProps {
  readonly clientId: string
  readonly account: OwnerAccount
}

function Choice({ clientId, account }: ChoiceProps): ReactNode {
  const plans = useQuery(ownerPlansQuery(clientId))
  const [asked, setAsked] = useState<OwnerPlan | null>(null)
  const [result, setResult] = useState<Schemas['SubscriptionChange'] | null>(null)
  return (
    <>
      <Answer query={plans} rows={3}>
        {(all) =>
          all.every((plan) => isCurrent(account, plan)) ? (
            <p className="soft">The platform has no other plan for owners.</p>
          ) : (
            <PlanTable plans={all} account={account} onChoose={setAsked} />
          )
        }
      </Answer>
      {asked && (
        <Change
          clientId={clientId}
          plan={asked}
          onDone={(change) => {
            setResult(change)
            setAsked(null)
          }}
          onClose={() => setAsked(null)}
        />
      )}
      {result && <Result result={result} />}
    </>
  )
}

interface PlanTableProps {
  readonly plans: readonly OwnerPlan[]
  readonly account: OwnerAccount
  readonly onChoose: (plan: OwnerPlan) => void
}

const PlanTable = ({ plans, account, onChoose }: PlanTableProps): ReactNode => (
  <TableBox label="Table of owner plans">
    <table>
      <thead>
        <tr>
          <th scope="col">Plan</th>
          <th scope="col">Price</th>
          <th scope="col">Includes</th>
          <th scope="col">Paid</th>
          <th scope="col">Choice</th>
        </tr>
      </thead>
      <tbody>
        {plans.map((plan) => (
          <tr key={plan.id}>
            <th scope="row">
              <Name>{plan.name}</Name>
            </th>
            <td>
              <Dollars value={plan.priceAmount} /> <small>{plan.billingCycle}</small>
            </td>
            <td>
              <Included micros={plan.includedUsdMicros} />
              {plan.includedUnits !== null && <small> and {plan.includedUnits} units</small>}
            </td>
            <td>
              <Payment plan={plan} />
            </td>
            <td>
              {isCurrent(account, plan) ? (
                <span className="badge good">your plan</span>
              ) : (
                <Button
                  isSmall
                  aria-label={plan.isStarter ? 'End the plan' : `Choose ${plan.name}`}
                  onClick={() => onChoose(plan)}
                >
                  {plan.isStarter ? 'End the plan' : 'Choose'}
                </Button>
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

/** When the card is charged. */
function Payment({ plan }: { plan: OwnerPlan }): ReactNode {
  if (plan.isStarter || !plan.needsCard) return 'without a card'
  if (plan.type !== 'usage') return 'before each period'
  return plan.chargeThresholdUsdMicros === null ? (
    'by use, when a period ends'
  ) : (
    <>
      by use, each <Micros value={plan.chargeThresholdUsdMicros} />
    </>
  )
}

interface ChangeProps {
  readonly clientId: string
  readonly plan: OwnerPlan
  readonly onDone: (change: Schemas['SubscriptionChange']) => void
  readonly onClose: () => void
}

/** Asks before the change. Each dialog is one change, and so has one key. */
function Change({ clientId, plan, onDone, onClose }: ChangeProps): ReactNode {
  const take = useTakeOwnerPlan(clientId)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const submit = useOneAtATime()
  return (
    <Confirm
      title={plan.isStarter ? 'End the owner plan?' : `Change to ${plan.name}?`}
      effect={<Effect plan={plan} />}
      action={plan.isStarter ? 'End the plan' : 'Take the plan'}
      isBusy={take.isPending || take.data?.checkoutUrl !== undefined}
      error={take.error && inWords(take.error)}
      onConfirm={() =>
        submit((onSettled) =>
          take.mutate(
            { planId: plan.id, idempotencyKey },
            {
              onSuccess: (change) => {
                if (change.checkoutUrl === undefined) onDone(change)
                else location.assign(change.checkoutUrl)
              },
              // The service repeats the result of a declined charge for its key.
              onError: (error) => {
                if (error instanceof ApiError && error.status === 402) renewKey()
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

function Effect({ plan }: { plan: OwnerPlan }): ReactNode {
  if (plan.isStarter)
    return 'Your plan ends with its running period. Then your account includes what Starter includes. Prepaid credit stays.'
  return (
    <>
      You move to <Name>{plan.name}</Name> at once if it costs more than your plan, else when the
      running period ends. It covers all your apps.{' '}
      {plan.needsCard && (
        <>
          Your card on file is charged; without a card, the page of the payment processor opens, and
          your plan stays until it reports the payment.
        </>
      )}
    </>
  )
}

/** What an owner can do about a refusal, by its code. */
const cures: Readonly<Record<string, string>> = {
  card_declined:
    'Nothing was charged. Change the card of your account, then choose the plan again.',
  processor_not_connected:
    'This deployment has no payment processor. Ask its operator, who can also change your plan.',
  processor_unreachable: 'Look at your plan in some minutes, before you choose it again.',
  processor_refused: 'Ask the operator of this deployment.',
  edit_forbidden: 'Only the owner whose account pays can take a plan.',
}

function inWords(error: Error): Error {
  if (!(error instanceof ApiError)) return error
  const cure = cures[error.code]
  if (cure === undefined) return error
  const { status, code, correlationId } = error
  const details = { status, code, ...(correlationId !== undefined && { correlationId }) }
  return new ApiError(`${error.message}. ${cure}`, details)
}

const Result = ({ result: { effectiveAt } }: { result: Schemas['SubscriptionChange'] }) => (
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
