import { useNavigate } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import type { AuditFilter } from '../api/queries.ts'
import { Button } from '../ui/button.tsx'
import { actionGroups } from './actions.ts'

const compact = ({ action, actor, from, to }: Required<AuditFilter>): AuditFilter => ({
  ...(action !== '' && { action }),
  ...(actor !== '' && { actor }),
  ...(from !== '' && { from }),
  ...(to !== '' && { to }),
})

/** The filter of the log. A choice applies at once, what is typed with "Show". */
export function Filter({ filter }: { filter: AuditFilter }): ReactNode {
  const navigate = useNavigate({ from: '/$clientId/audit' })
  const [fields, setFields] = useState({ action: '', actor: '', from: '', to: '', ...filter })
  const change = (changed: AuditFilter): void => setFields({ ...fields, ...changed })
  const show = (search: AuditFilter): void => void navigate({ search })
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault()
        show(compact({ ...fields, actor: fields.actor.trim() }))
      }}
    >
      <label>
        Action
        <select
          value={fields.action}
          onChange={({ target }) => show(compact({ ...fields, action: target.value }))}
        >
          <option value="">all</option>
          <Actions chosen={fields.action} />
        </select>
      </label>
      <label>
        By
        <input
          type="search"
          value={fields.actor}
          maxLength={200}
          spellCheck={false}
          placeholder="Account or client id"
          onChange={(event) => change({ actor: event.target.value })}
        />
      </label>
      <label>
        From
        <input
          type="date"
          value={fields.from}
          onChange={(event) => change({ from: event.target.value })}
        />
      </label>
      <label>
        To
        <input
          type="date"
          min={fields.from || undefined}
          value={fields.to}
          onChange={(event) => change({ to: event.target.value })}
        />
      </label>
      <Button type="submit">Show</Button>
      {Object.keys(filter).length > 0 && <Button onClick={() => show({})}>Show all</Button>}
      <span className="soft">Days in UTC</span>
    </form>
  )
}

/** The known actions, and the one in the address if it is another. */
function Actions({ chosen }: { chosen: string }): ReactNode {
  const groups = Object.entries(actionGroups)
  const isKnown = chosen === '' || groups.some(([, actions]) => actions.includes(chosen))
  return (
    <>
      {!isKnown && <option>{chosen}</option>}
      {groups.map(([name, actions]) => (
        <optgroup key={name} label={name}>
          {actions.map((action) => (
            <option key={action}>{action}</option>
          ))}
        </optgroup>
      ))}
    </>
  )
}
