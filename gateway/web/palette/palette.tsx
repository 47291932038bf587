import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { type ReactNode, useEffect, useState } from 'react'
import { everyAppQuery } from '../api/every-app.ts'
import { appQuery, appsQuery, sessionQuery } from '../api/queries.ts'
import { usersBeginningQuery } from '../api/users.ts'
import { type Command, listAppCommands, listApps, listOperate, toUserCommand } from './commands.ts'
import { Modal } from './modal.tsx'
import { Search } from './search.tsx'
import { useTicketCommand } from './tickets.ts'
import './palette.css'

const typingMs = 200
const searchMax = 200

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
      <Search
        commands={commands}
        text={text}
        isBusy={isBusy}
        // A single character is a shortcut only here: speech input may type it anywhere.
        onText={(typed) => (typed === '?' ? onShortcuts() : setText(typed))}
        onDone={onClose}
      />
    </Modal>
  )
}

function useCommands(text: string, onShortcuts: () => void) {
  const navigate = useNavigate()
  const { clientId } = useParams({ strict: false })
  const { data: session } = useQuery(sessionQuery)
  const wanted = useSettled(text)
  const isAdmin = session?.isPlatformAdmin ?? false
  const apps = useApps(wanted, isAdmin)
  const ofApp = useAppCommands(clientId, wanted)
  const ticket = useTicketCommand(clientId, wanted)
  const commands = [
    ...ticket.commands,
    ...ofApp.commands,
    ...(session?.canCreateApps ? [toNewApp(() => void navigate({ to: '/new' }))] : []),
    ...listApps(navigate, apps.found),
    ...(isAdmin ? listOperate(navigate) : []),
    ...listGeneral(navigate, onShortcuts),
  ]
  return { commands, isBusy: wanted !== text || [ofApp, apps, ticket].some(({ isBusy }) => isBusy) }
}

/** The first apps, and for platform admins those that fit the text among all. */
function useApps(wanted: string, isAdmin: boolean) {
  const first = useInfiniteQuery(appsQuery)
  const fitting = useInfiniteQuery({
    ...everyAppQuery(wanted.slice(0, searchMax)),
    enabled: isAdmin && wanted !== '',
  })
  const apps = [
    ...(first.data?.pages.flatMap((page) => page.apps) ?? []),
    ...(fitting.data?.pages.flatMap((page) => page.apps) ?? []),
  ]
  const byId = new Map(apps.map(({ clientId, name }) => [clientId, { clientId, name }]))
  return { found: [...byId.values()], isBusy: fitting.isFetching }
}

/** Commands of the app that is shown, and users of it whose ids or addresses begin with the text. */
function useAppCommands(clientId: string | undefined, wanted: string) {
  const navigate = useNavigate()
  const isShown = clientId !== undefined
  const app = useQuery({ ...appQuery(clientId ?? ''), enabled: isShown })
  const users = useQuery({
    ...usersBeginningQuery(clientId ?? '', wanted),
    enabled: isShown && wanted !== '',
  })
  if (!isShown) return { commands: [], isBusy: false }
  const canEdit = app.data?.canEdit ?? false
  const found = (users.data ?? []).map((user) => toUserCommand(navigate, { ...user, clientId }))
  const commands = [...found, ...listAppCommands({ navigate, clientId, canEdit })]
  return { commands, isBusy: users.isFetching }
}

const listGeneral = (
  navigate: ReturnType<typeof useNavigate>,
  onShortcuts: () => void,
): Command[] => [
  { id: 'apps', group: 'General', name: 'Apps', run: () => void navigate({ to: '/' }) },
  { id: 'me', group: 'General', name: 'My use', run: () => void navigate({ to: '/me' }) },
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
