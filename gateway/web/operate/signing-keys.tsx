import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { signingKeysQuery, useRotateSigningKeys } from '../api/operate.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { TableBox } from '../ui/table-box.tsx'

const looks: Readonly<Record<string, string>> = { active: 'badge good', next: 'badge' }

/** The keys that sign tokens, and their rotation. */
export function SigningKeys(): ReactNode {
  const keys = useQuery(signingKeysQuery)
  const [isForced, setIsForced] = useState<boolean | null>(null)
  return (
    <Page
      title="Signing keys"
      about="The keys that sign tokens. Verifiers know the next one before it signs."
    >
      <section className="card" aria-label="Signing keys">
        <Answer query={keys}>
          {(all) => (
            <TableBox label="Table of signing keys">
              <table>
                <thead>
                  <tr>
                    <th scope="col">Key</th>
                    <th scope="col">State</th>
                    <th scope="col">Algorithm</th>
                    <th scope="col">Made</th>
                    <th scope="col">Published until</th>
                  </tr>
                </thead>
                <tbody>
                  {all.map(({ kid, status, alg, createdAt, retireAt }) => (
                    <tr key={kid}>
                      <th scope="row">
                        <code>{kid}</code>
                      </th>
                      <td>
                        <span className={looks[status] ?? 'badge warn'}>{status}</span>
                      </td>
                      <td>{alg}</td>
                      <td>
                        <Instant at={createdAt} />
                      </td>
                      <td>{retireAt === undefined ? '' : <Instant at={retireAt} />}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </TableBox>
          )}
        </Answer>
        <div className="row">
          <Button onClick={() => setIsForced(false)}>Rotate</Button>
          <Button kind="danger" onClick={() => setIsForced(true)}>
            Rotate at once
          </Button>
        </div>
      </section>
      {isForced !== null && <Question isForced={isForced} onClose={() => setIsForced(null)} />}
    </Page>
  )
}

interface QuestionProps {
  readonly isForced: boolean
  readonly onClose: () => void
}

function Question({ isForced, onClose }: QuestionProps): ReactNode {
  const rotate = useRotateSigningKeys()
  return (
    <Confirm
      title={isForced ? 'Rotate at once?' : 'Rotate the signing keys?'}
      effect={
        isForced
          ? 'The next key signs from now on, even if verifiers do not know it yet: those that do not look up unknown keys refuse new tokens for minutes. Use it for a leaked key. This cannot be undone.'
          : 'The next key signs from now on, and a new next key is published. Earlier tokens stay valid until they expire. This cannot be undone.'
      }
      typed="rotate"
      action="Rotate"
      isBusy={rotate.isPending}
      error={rotate.error}
      onConfirm={() => rotate.mutate(isForced, { onSuccess: onClose })}
      onClose={onClose}
    />
  )
}
