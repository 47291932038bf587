import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import {
  newestInvoicesQuery,
  ownerStateQuery,
  refetchInterval,
  signerSecretsQuery,
} from '../api/attention.ts'
import { processorQuery } from '../api/money.ts'
import { quarantineQuery } from '../api/quarantine.ts'
import { appQuery, sessionQuery } from '../api/queries.ts'
import { useRights } from '../api/rights.ts'
import { lossQuery, unpricedQuery } from '../api/usage.ts'
import { endpointsQuery } from '../api/webhooks.ts'
import { Button } from '../ui/button.tsx'
import { type Range, type RangeSearch, toDates, widen } from '../ui/usage/range.ts'
import {
  type Concern,
  fromEndpoint,
  fromInvoices,
  fromLoss,
  fromProcessor,
  fromQuarantine,
  fromSecrets,
  fromState,
  fromUnpriced,
  missingSecret,
} from './concerns.tsx'

interface AttentionProps {
  readonly clientId: string
  readonly range: Range
  readonly search: RangeSearch
}

/** What somebody should look at or do, each with the way there. */
export function Attention({ clientId, range, search }: AttentionProps): ReactNode {
  const { concerns, failed, isWaiting, retry } = useConcerns(clientId, range)
  if (concerns.length === 0 && failed === 0)
    return isWaiting ? null : <p className="soft">Nothing needs attention.</p>
  return (
    <section className="card" aria-labelledby="attention">
      <h2 id="attention">Needs attention</h2>
      <ul className="concerns">
        {concerns.map((each) => (
          <li key={each.key}>
            <span className={`badge ${each.isUrgent ? 'bad' : 'warn'}`}>{each.title}</span>
            <div>{each.text}</div>
            <Action clientId={clientId} search={search} leadsTo={each.leadsTo} />
          </li>
        ))}
        {failed > 0 && (
          <li>
            <span className="badge">Not checked</span>
            <div>{failed === 1 ? 'One check' : `${failed} checks`} failed.</div>
            <Button isSmall onClick={retry}>
              Check again
            </Button>
          </li>
        )}
      </ul>
    </section>
  )
}

interface ActionProps {
  readonly clientId: string
  readonly search: RangeSearch
  readonly leadsTo: Concern['leadsTo']
}

function Action({ clientId, search, leadsTo }: ActionProps): ReactNode {
  const className = 'button small'
  const params = { clientId }
  switch (leadsTo) {
    case 'losses':
      return (
        <Link
          className={className}
          to="/$clientId/usage"
          params={params}
          search={{ ...search, by: 'loss' }}
          hash="groups"
        >
          See losses
        </Link>
      )
    case 'user-invoices':
    case 'owner-invoices':
      return (
        <Link
          className={className}
          to="/$clientId/invoices"
          params={params}
          search={{ payer: leadsTo === 'owner-invoices' ? 'owner' : 'users' }}
        >
          See invoices
        </Link>
      )
    case 'payment':
      return (
        <Link className={className} to="/$clientId/money" params={params}>
          Payment account
        </Link>
      )
    case 'settings':
      return (
        <Link className={className} to="/$clientId/settings" params={params}>
          Settings
        </Link>
      )
    case 'webhooks':
      return (
        <Link className={className} to="/$clientId/webhooks" params={params}>
          Webhooks
        </Link>
      )
    case 'ingest':
      return (
        <Link className={className} to="/operate/ingest">
          See ingest
        </Link>
      )
    case 'quarantine':
      return (
        <Link className={className} to="/operate/quarantine">
          See quarantine
        </Link>
      )
    default:
      return null
  }
}

/** Reads everything that may need attention and that the person may see. */
function useConcerns(clientId: string, range: Range) {
  const answers = useAnswers(clientId, range)
  const { data: session } = useQuery(sessionQuery)
  const { app, state, toOwner, toUsers, unpriced, loss, processor, endpoints } = answers
  const { secrets, quarantine } = answers
  const found = [
    concern(app, missingSecret),
    concern(state, fromState),
    concern(toOwner, (invoices) => fromInvoices('owner', invoices)),
    concern(toUsers, (invoices) => fromInvoices('users', invoices)),
    concern(unpriced, (count) => fromUnpriced(count, session?.isPlatformAdmin ?? false)),
    concern(loss, ({ pages: [first] }) => (first ? fromLoss(first) : null)),
    concern(processor, fromProcessor),
    ...(endpoints.data?.endpoints ?? []).map(fromEndpoint),
    concern(quarantine, ({ pages: [first] }) => (first ? fromQuarantine(first) : null)),
    ...fromSecrets(
      {
        client: app.data?.m2mOidcClient?.secrets ?? [],
        signer: secrets.data ?? [],
        endpoints: endpoints.data?.endpoints ?? [],
      },
      Date.now(),
    ),
  ]
  const failed = Object.values(answers).filter(({ error }) => error !== null)
  return {
    concerns: found.filter((each) => each !== null),
    failed: failed.length,
    isWaiting: Object.values(answers).some(({ isLoading }) => isLoading),
    retry: () => {
      for (const { refetch } of failed) void refetch()
    },
  }
}

const concern = <Data,>(
  { data }: { readonly data: Data | undefined },
  toConcern: (data: Data) => Concern | null,
): Concern | null => (data === undefined ? null : toConcern(data))

function useAnswers(clientId: string, range: Range) {
  const { canOwn } = useRights(clientId)
  const { data: session } = useQuery(sessionQuery)
  const processor = useQuery({ ...processorQuery(clientId), refetchInterval })
  const ownerPays =
    processor.data?.billingMode === 'owner_rollup' && !processor.data.isPlatformOwned
  return {
    app: useQuery(appQuery(clientId)),
    unpriced: useQuery(unpricedQuery(clientId)),
    loss: useInfiniteQuery(lossQuery(clientId, toDates(widen(range.current)))),
    processor,
    state: useQuery({ ...ownerStateQuery(clientId), enabled: ownerPays }),
    toUsers: useQuery(newestInvoicesQuery(clientId, 'users')),
    toOwner: useQuery(newestInvoicesQuery(clientId, 'owner')),
    endpoints: useQuery({ ...endpointsQuery(clientId), refetchInterval }),
    secrets: useQuery({ ...signerSecretsQuery(clientId), enabled: canOwn }),
    quarantine: useInfiniteQuery({
      ...quarantineQuery({ status: 'open' }),
      refetchInterval,
      enabled: session?.isPlatformAdmin ?? false,
    }),
  }
}
