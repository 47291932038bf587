import { useQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { invoiceQuery } from '../api/queries.ts'
import { useRights } from '../api/rights.ts'
import { Dollars } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant, Period } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { Corrections } from './corrections.tsx'
import { InvoiceStatus, reasonNames } from '../ui/money/invoice-status.tsx'

/** One invoice or credit note, with its lines. */
export function Invoice(): ReactNode {
  const { clientId, invoiceId } = useParams({ from: '/$clientId/invoices/$invoiceId' })
  const invoice = useQuery(invoiceQuery(clientId, invoiceId))
  const { canEdit } = useRights(clientId)
  const title = invoice.data?.number ?? 'Invoice'
  const url = invoice.data?.hostedInvoiceUrl
  return (
    <Page
      title={title}
      actions={
        url && (
          <a className="button" href={url} target="_blank" rel="noreferrer">
            Page to print
          </a>
        )
      }
    >
      <Answer query={invoice} rows={6}>
        {(data) => (
          <>
            <Facts invoice={data} clientId={clientId} />
            <Lines invoice={data} />
            <CreditNotes invoice={data} clientId={clientId} />
            {canEdit && data.issuerClientId === clientId && <Corrections invoice={data} />}
          </>
        )}
      </Answer>
    </Page>
  )
}

type InvoiceData = Schemas['Invoice']

interface FactsProps {
  readonly invoice: InvoiceData
  readonly clientId: string
}

function Facts({ invoice, clientId }: FactsProps): ReactNode {
  const { status, issuedAt, paidAt, periodStart, periodEnd, reason, note } = invoice
  const { invoiceType, invoiceId, issuerClientId } = invoice
  const isOfUser = issuerClientId === clientId
  return (
    <section className="card" aria-label="Facts">
      <dl className="facts">
        <div>
          <dt>Status</dt>
          <dd>
            <InvoiceStatus status={status} />
          </dd>
        </div>
        {isOfUser ? <BilledUser invoice={invoice} /> : <Issuer invoice={invoice} />}
        <div>
          <dt>Issued</dt>
          <dd>
            <Instant at={issuedAt} />, because of {reasonNames[reason]}
          </dd>
        </div>
        {invoiceType === 'credit_note' ? (
          invoiceId !== null && (
            <Credited
              params={{ clientId, invoiceId }}
              number={invoice.invoiceNumber ?? 'an invoice'}
            />
          )
        ) : (
          <div>
            <dt>Paid</dt>
            <dd>{paidAt === null ? 'not yet' : <Instant at={paidAt} />}</dd>
          </div>
        )}
        <div>
          <dt>{isOfUser ? 'Period of the user' : 'Period of the owner'}</dt>
          <dd>
            <Period from={periodStart} to={periodEnd} />
          </dd>
        </div>
        {note !== null && (
          <div>
            <dt>Note</dt>
            <dd>
              <Name>{note}</Name>
            </dd>
          </div>
        )}
      </dl>
    </section>
  )
}

const BilledUser = ({ invoice }: { invoice: InvoiceData }): ReactNode => {
  const { issuerClientId: clientId, customerKey: externalUserId } = invoice
  return (
    <div>
      <dt>User</dt>
      <dd>
        <Link to="/$clientId/users/$externalUserId" params={{ clientId, externalUserId }}>
          <Name>{externalUserId}</Name>
        </Link>
      </dd>
    </div>
  )
}

/** Of an owner's invoice, which can be for all apps of the owner. */
const Issuer = ({ invoice: { issuerName } }: { invoice: InvoiceData }): ReactNode => (
  <div>
    <dt>Issued to the owner by</dt>
    <dd>
      <Name>{issuerName}</Name>
    </dd>
  </div>
)

interface CreditedProps {
  readonly params: { readonly clientId: string; readonly invoiceId: string }
  readonly number: string
}

/** The invoice that a credit note credits. */
const Credited = ({ params, number }: CreditedProps): ReactNode => (
  <div>
    <dt>Credits</dt>
    <dd>
      <Link to="/$clientId/invoices/$invoiceId" params={params}>
        {number}
      </Link>
    </dd>
  </div>
)

/** The credit notes of an invoice, which the answers of older gateways lack. */
const CreditNotes = ({ invoice: { creditNotes = [] }, clientId }: FactsProps): ReactNode =>
  creditNotes.length > 0 && (
    <section className="card" aria-labelledby="credit-notes">
      <h2 id="credit-notes">Credit notes</h2>
      <TableBox label="Table of credit notes">
        <table>
          <thead>
            <tr>
              <th scope="col">Number</th>
              <th scope="col">Issued</th>
              <th scope="col">Because of</th>
              <th scope="col">Note</th>
              <th scope="col" className="number">
                Total
              </th>
            </tr>
          </thead>
          <tbody>
            {creditNotes.map(({ id, number, issuedAt, reason, note, totalAmount }) => (
              <tr key={id}>
                <th scope="row">
                  <Link to="/$clientId/invoices/$invoiceId" params={{ clientId, invoiceId: id }}>
                    {number}
                  </Link>
                </th>
                <td>
                  <Instant at={issuedAt} />
                </td>
                <td>{reasonNames[reason]}</td>
                <td>{note !== null && <Name>{note}</Name>}</td>
                <td className="number">
                  <Dollars value={totalAmount} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableBox>
    </section>
  )

function Lines({ invoice }: { invoice: InvoiceData }): ReactNode {
  const { lines, totalAmount, carriedInAmount, carriedAmount, creditedAmount } = invoice
  const sums: readonly (readonly [string, string])[] = [
    ['Carried from the invoice before', carriedInAmount],
    ['Carried to the next invoice', carriedAmount],
    ['Total', totalAmount],
    ['Credited since', creditedAmount],
  ]
  return (
    <section className="card" aria-labelledby="lines">
      <h2 id="lines">Lines</h2>
      <TableBox label="Table of lines">
        <table>
          <thead>
            <tr>
              <th scope="col">For</th>
              <th scope="col">Kind</th>
              <th scope="col" className="number">
                Tickets
              </th>
              <th scope="col" className="number">
                Amount
              </th>
            </tr>
          </thead>
          <tbody>
            {lines.map(({ id, name, kind, tickets, totalAmount: amount, totalUsdExact }) => (
              <tr key={id}>
                <th scope="row">
                  <Name>{name}</Name>
                </th>
                <td>{kind}</td>
                <td className="number">{tickets !== null && formatCount(Number(tickets))}</td>
                <td className="number" title={`${totalUsdExact} USD`}>
                  <Dollars value={amount} />
                </td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            {sums
              .filter(([name, amount]) => name === 'Total' || Number(amount) !== 0)
              .map(([name, amount]) => (
                <tr key={name}>
                  <th scope="row" colSpan={3}>
                    {name}
                  </th>
                  <td className="number">
                    <Dollars value={amount} />
                  </td>
                </tr>
              ))}
          </tfoot>
        </table>
      </TableBox>
    </section>
  )
}
