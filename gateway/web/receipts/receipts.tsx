import { useQuery } from '@tanstack/react-query'
import { useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { findRoot, issuerQuery, receiptQuery } from '../api/receipts.ts'
import { Answer } from '../ui/answer.tsx'
import { Page } from '../ui/page.tsx'
import { SearchForm } from '../ui/search/search-form.tsx'
import { Empty, Failure } from '../ui/states.tsx'
import { checkReceipt } from '../../../proto/receipts/check.ts'
import { readKeys, readReceipt } from '../../../proto/receipts/document.ts'
import { compareListed } from './listed.ts'
import { Result } from './verdict.tsx'

const from = '/$clientId/receipts'

/** Checks the receipt of a ticket, here in the browser. */
export function Receipts(): ReactNode {
  const { clientId } = useParams({ from })
  const { ticket } = useSearch({ from })
  return (
    <Page
      title="Receipts"
      about="A receipt proves what a ticket cost and why. This page checks it in your browser."
    >
      <Choice ticket={ticket} />
      {ticket === undefined ? (
        <Verification fetched="" />
      ) : (
        <Fetched key={ticket} clientId={clientId} eventId={ticket} />
      )}
    </Page>
  )
}

/** Gets the receipt of a ticket by the ticket's event id, which the address has. */
function Choice({ ticket }: { ticket: string | undefined }): ReactNode {
  const navigate = useNavigate({ from })
  return (
    <SearchForm
      label="Event id of a ticket"
      value={ticket ?? ''}
      action="Get its receipt"
      onSearch={(wanted) => void navigate({ search: wanted === '' ? {} : { ticket: wanted } })}
    />
  )
}

function Fetched({ clientId, eventId }: { clientId: string; eventId: string }): ReactNode {
  const receipt = useQuery(receiptQuery(clientId, eventId))
  return (
    <Answer query={receipt}>
      {(data) => <Verification fetched={JSON.stringify(data, null, 2)} />}
    </Answer>
  )
}

/** The receipt as text, which may be replaced or changed, and what the checks of it find. */
function Verification({ fetched }: { fetched: string }): ReactNode {
  const [text, setText] = useState(fetched)
  const [kept, setKept] = useState('')
  return (
    <>
      <section className="card" aria-labelledby="receipt">
        <h2 id="receipt">Receipt</h2>
        <label className="wide">
          The JSON of the receipt; paste one that you were given, or change it to see what is found
          <textarea
            className="code"
            rows={8}
            spellCheck={false}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </label>
        <details>
          <summary>Keys</summary>
          <label className="wide">
            Public keys that you kept, as a JWK set; empty for the keys that are published now
            <textarea
              className="code"
              rows={4}
              spellCheck={false}
              value={kept}
              onChange={(event) => setKept(event.target.value)}
            />
          </label>
        </details>
      </section>
      <section className="card" aria-labelledby="checks">
        <h2 id="checks">Checks</h2>
        {text.trim() === '' ? (
          <Empty>
            Paste a receipt, or get one by its ticket. A receipt is not sent anywhere: the page only
            asks the service for its keys and for the root of the day.
          </Empty>
        ) : (
          <Checks text={text} kept={kept.trim()} />
        )}
      </section>
    </>
  )
}

function Checks({ text, kept }: { text: string; kept: string }): ReactNode {
  const issuer = useQuery({ ...issuerQuery, enabled: kept === '' })
  const published = issuer.data
  const verdict = useQuery({
    queryKey: ['receipt-checks', text, kept, published],
    enabled: kept !== '' || published !== undefined,
    retry: false,
    gcTime: 0,
    queryFn: () => {
      // Browsers offer it to https and to localhost only. Its type does not know that.
      if (!('subtle' in crypto))
        throw new Error('The browser checks signatures only on pages under https or localhost.')
      return checkReceipt(readReceipt(text), {
        keys: readKeys(kept === '' ? (published?.keys ?? '') : kept),
        issuer: kept === '' ? (published?.issuer ?? null) : null,
        roots: { areNeeded: false, compare: compareListed(findRoot) },
      })
    },
  })
  if (kept === '' && issuer.error)
    return <Failure error={issuer.error} retry={() => void issuer.refetch()} />
  if (verdict.error)
    return (
      <p className="problem" role="status">
        {verdict.error.message}
      </p>
    )
  return <Answer query={verdict}>{(data) => <Result {...data} />}</Answer>
}
