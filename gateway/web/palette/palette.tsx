import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { type ReactNode, useEffect, useState } from 'react'
import { appQuery, appsQuery, sessionQuery } from '../api/queries.ts'
import { userQuery } from '../api/users.ts'
import { type Command, listAppCommands, listApps, listOperate, toUserCommand } from './commands.ts'
import { Modal } from './modal.tsx'
import { Search } from './search.tsx'
import './palette.css'

const typingMs = 200

interface PaletteProps {
  readonly onClose: () => void
  readonly onShortcuts: () => void
}

/** Leads to every page, app, user and action by a few letters. */
export function Palette({ onClose, onShortcuts }: PaletteProps): ReactNode {
  const [text, setText] = useState('')
  const { commands, isBusy } = useCommands(text.trim(), onShortcuts)
  return (
    <Modal label="Command palette" className="palette" onClose={onClose}>
      <Search commands={commands} text={text} isBusy={isBusy} onText={setText} onDone={onClose} />
    </Modal>
  )
}

function useCommands(text: string, onShortcuts: () => void) {
  const navigate = useNavigate()
  const { clientId } = useParams({ strict: false })
  const { data: session } = useQuery(sessionQuery)
  const { data: apps } = useInfiniteQuery(appsQuery)
  const { commands: ofApp, isBusy } = useAppCommands(clientId, text)
  const commands = [
    ...ofApp,
    ...(session?.canCreateApps ? [toNewApp(() => void navigate({ to: '/new' }))] : []),
    ...listApps(navigate, apps?.pages.flatMap((page) => page.apps) ?? []),
    ...(session?.isPlatformAdmin ? listOperate(navigate) : []),
    ...listGeneral(() => void navigate({ to: '/' }), onShortcuts),
  ]
  return { commands, isBusy }
}

/** Commands of the app that is shown, and the user of it whose id was typed. */
function useAppCommands(clientId: string | undefined, text: string) {
  const navigate = useNavigate()
  const isShown = clientId !== undefined
  const wanted = useSettled(text)
  const app = useQuery({ ...appQuery(clientId ?? ''), enabled: isShown })
  const user = useQuery({
    ...userQuery({ clientId: clientId ?? '', externalUserId: wanted }),
    enabled: isShown && wanted !== '',
  })
  if (!isShown) return { commands: [], isBusy: false }
  const canEdit = app.data?.canEdit ?? false
  const found = user.data && wanted === text ? [toUserCommand(navigate, user.data)] : []
  const commands = [...found, ...listAppCommands({ navigate, clientId, canEdit })]
  return { commands, isBusy: wanted !== text || user.isFetching }
}

const listGeneral = (onApps: () => void, onShortcuts: () => void): Command[] => [
  { id: 'apps', group: 'General', name: 'All apps', run: onApps },
  { id: 'shortcuts', group: 'General', name: 'Keyboard shortcuts', run: onShortcuts },
  {
    id: 'account',
    group: 'General',
    name: 'Account',
    about: 'log out, invitations',
    run: () => location.assign('/login'),
  },
]

const toNewApp = (run: () => void): Command => ({
  id: 'new-app',
  group: 'Actions',
  name: 'Create an app',
  run,
})

/** The text, once it has not changed for a moment. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), typingMs)
    return () => clearTimeout(timer)
  }, [text])
  return settled
}
