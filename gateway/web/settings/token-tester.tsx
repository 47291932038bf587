import { type ReactNode, useState } from 'react'
import { type TokenCheck, useIssuerChanges } from '../api/settings.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

/** Applies every rule to a token, which is neither stored nor logged. */
export function TokenTester({ clientId }: { clientId: string }): ReactNode {
  const [token, setToken] = useState('')
  const { check } = useIssuerChanges(clientId)
  return (
    <details>
      <summary>Try a token</summary>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault()
          check.mutate(token.trim())
        }}
      >
        <label>
          Token (JWT)
          <textarea
            required
            rows={3}
            maxLength={20_000}
            spellCheck={false}
            autoComplete="off"
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        <Button type="submit" disabled={check.isPending}>
          {check.isPending ? 'Checking …' : 'Check'}
        </Button>
      </form>
      {check.error && <Failure error={check.error} />}
      {check.data && <Result check={check.data} />}
    </details>
  )
}

const Result = ({ check }: { check: TokenCheck }): ReactNode => (
  <div className="stack" role="status">
    <p>
      <span className={check.accepted ? 'badge good' : 'badge bad'}>
        {check.accepted ? 'accepted' : 'refused'}
      </span>{' '}
      {check.externalUserId !== null && (
        <>
          as the user <code>{check.externalUserId}</code> ({check.userStatus ?? 'unknown'})
        </>
      )}
    </p>
    {check.warnings.map((warning) => (
      <p key={warning} className="notice">
        {warning}
      </p>
    ))}
    <TableBox label="Table of rules">
      <table>
        <thead>
          <tr>
            <th scope="col">Rule</th>
            <th scope="col">Result</th>
            <th scope="col">Detail</th>
          </tr>
        </thead>
        <tbody>
          {check.rules.map(({ rule, passed, detail }) => (
            <tr key={rule}>
              <th scope="row">{rule}</th>
              <td>
                <span className={passed ? 'badge good' : 'badge bad'}>
                  {passed ? 'passed' : 'failed'}
                </span>
              </td>
              <td>{detail}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableBox>
  </div>
)
