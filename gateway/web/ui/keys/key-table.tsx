import type { ReactNode } from 'react'
import type { Schemas } from '../../api/client.ts'
import { Button } from '../button.tsx'
import { Instant } from '../instant.tsx'
import { Name } from '../name.tsx'
import { TableBox } from '../table-box.tsx'

interface KeyTableProps {
  readonly label: string
  readonly keys: readonly Schemas['Key'][]
  readonly onRevoke?: (key: Schemas['Key']) => void
}

/** Keys, each with a button that revokes it if `onRevoke` is given. */
export const KeyTable = ({ label, keys, onRevoke }: KeyTableProps): ReactNode => (
  <TableBox label={label}>
    <table>
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col">Begins with</th>
          <th scope="col">Status</th>
          <th scope="col">Created</th>
          <th scope="col">Last used</th>
          {onRevoke && <th scope="col">Actions</th>}
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key.keyId}>
            <th scope="row">
              {key.label === null ? (
                <span className="soft">no name</span>
              ) : (
                <Name>{key.label}</Name>
              )}
            </th>
            <td>
              <code>{key.prefix}…</code>
            </td>
            <td>
              <span className={key.revokedAt === null ? 'badge good' : 'badge bad'}>
                {key.status}
              </span>
              {key.revokedAt !== null && (
                <small>
                  <Instant at={key.revokedAt} />
                </small>
              )}
            </td>
            <td>
              <Instant at={key.createdAt} />
            </td>
            <td>{key.lastUsedAt === null ? 'never' : <Instant at={key.lastUsedAt} />}</td>
            {onRevoke && (
              <td>
                {key.revokedAt === null && (
                  <Button
                    isSmall
                    kind="danger"
                    aria-label={`Revoke the key ${key.label ?? key.prefix}`}
                    onClick={() => onRevoke(key)}
                  >
                    Revoke
                  </Button>
                )}
              </td>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
