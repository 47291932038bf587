import { useQuery } from '@tanstack/react-query'
import { Link, Outlet, useLocation, useParams } from '@tanstack/react-router'
import { type ReactNode, useState, useSyncExternalStore } from 'react'
import { appQuery, sessionQuery } from './api/queries.ts'
import { Launcher } from './palette/launcher.tsx'
import { Answer } from './ui/answer.tsx'
import { Button } from './ui/button.tsx'
import { toggleExact, useExact } from './ui/exact/exact.ts'
import { applyTheme, nextTheme, readTheme } from './ui/theme.ts'

/** The frame of every view: navigation at the side, the view, and who is logged in. */
export function Shell(): ReactNode {
  const session = useQuery(sessionQuery)
  const { clientId } = useParams({ strict: false })
  return (
    <div className="frame">
      <a className="skip" href="#content">
        Skip to content
      </a>
      <header className="side">
        <Link className="brand" to="/">
          tollgate
        </Link>
        {session.data && <Launcher />}
        <Folded>
          <nav aria-label="Views">
            <ul>
              <li>
                <Link to="/" activeOptions={{ exact: true }}>
                  Apps
                </Link>
              </li>
            </ul>
            {clientId !== undefined && <AppLinks clientId={clientId} />}
            {session.data?.isPlatformAdmin && <OperateLinks />}
          </nav>
          <div className="foot">
            {session.data && <span>{session.data.email}</span>}
            <Link to="/me">My use</Link>
            <a href="/login">Account</a>
            <a href="/api/v1/internal/docs/">API documents</a>
            <ExactSwitch />
            <ThemeSwitch />
            {session.data && <LogOut csrfToken={session.data.csrfToken} />}
          </div>
        </Folded>
      </header>
      <main className="main" id="content">
        <Answer query={session}>
          {/* Another account begins with empty forms. */}
          {({ accountId }) => <Outlet key={accountId} />}
        </Answer>
      </main>
    </div>
  )
}

const narrow = window.matchMedia('(max-width: 760px)')

function watchWidth(onChange: () => void): () => void {
  narrow.addEventListener('change', onChange)
  return () => narrow.removeEventListener('change', onChange)
}

/** Folds navigation and account on a narrow screen, so that the view begins at the top. */
function Folded({ children }: { children: ReactNode }): ReactNode {
  const isNarrow = useSyncExternalStore(watchWidth, () => narrow.matches)
  const path = useLocation({ select: ({ pathname }) => pathname })
  if (!isNarrow) return children
  return (
    // Another view folds it again.
    <details key={path} className="menu">
      <summary>Menu</summary>
      {children}
    </details>
  )
}

function AppLinks({ clientId }: { clientId: string }): ReactNode {
  const app = useQuery(appQuery(clientId))
  const params = { clientId }
  return (
    <>
      <h2 className="nav-title">{app.data?.name ?? 'App'}</h2>
      <ul>
        <li>
          <Link to="/$clientId" params={params} activeOptions={{ exact: true }}>
            Overview
          </Link>
        </li>
        <li>
          <Link to="/$clientId/usage" params={params}>
            Usage
          </Link>
        </li>
        <li>
          <Link to="/$clientId/users" params={params}>
            Users
          </Link>
        </li>
        <li>
          <Link to="/$clientId/invoices" params={params}>
            Invoices
          </Link>
        </li>
        <li>
          <Link to="/$clientId/money" params={params}>
            Money
          </Link>
        </li>
        <li>
          <Link to="/$clientId/plans" params={params}>
            Plans
          </Link>
        </li>
        <li>
          <Link to="/$clientId/receipts" params={params}>
            Receipts
          </Link>
        </li>
        <li>
          <Link to="/$clientId/webhooks" params={params}>
            Webhooks
          </Link>
        </li>
        <li>
          <Link to="/$clientId/settings" params={params}>
            Settings
          </Link>
        </li>
        <li>
          <Link to="/$clientId/team" params={params}>
            Team
          </Link>
        </li>
        <li>
          <Link to="/$clientId/setup" params={params}>
            Set-up
          </Link>
        </li>
        {app.data?.canEdit && (
          <li>
            <Link to="/$clientId/audit" params={params}>
              Audit log
            </Link>
          </li>
        )}
      </ul>
    </>
  )
}

const OperateLinks = (): ReactNode => (
  <>
    <h2 className="nav-title">Operate</h2>
    <ul>
      <li>
        <Link to="/operate/quarantine">Quarantine</Link>
      </li>
      <li>
        <Link to="/operate/apps">All apps</Link>
      </li>
      <li>
        <Link to="/operate/ingest">Ingest</Link>
      </li>
      <li>
        <Link to="/operate/catalogue">Catalogue</Link>
      </li>
      <li>
        <Link to="/operate/test-clocks">Test clocks</Link>
      </li>
      <li>
        <Link to="/operate/holds">Holds</Link>
      </li>
      <li>
        <Link to="/operate/losses">Losses</Link>
      </li>
      <li>
        <Link to="/operate/differences">Differences</Link>
      </li>
      <li>
        <Link to="/operate/checks">Checks</Link>
      </li>
      <li>
        <Link to="/operate/signers">Signers</Link>
      </li>
      <li>
        <Link to="/operate/signing-keys">Signing keys</Link>
      </li>
      <li>
        <Link to="/operate/configuration">Configuration</Link>
      </li>
      <li>
        <a href="/mail">Mails</a>
      </li>
    </ul>
  </>
)

/** Shows what hovering over amounts and instants shows, without a pointer. */
function ExactSwitch(): ReactNode {
  const isExact = useExact()
  return (
    <Button isSmall aria-pressed={isExact} onClick={toggleExact}>
      Exact values
    </Button>
  )
}

/** Ends the session at the page that also shows the result without JavaScript. */
const LogOut = ({ csrfToken }: { csrfToken: string }): ReactNode => (
  <form method="post" action="/logout">
    <input type="hidden" name="csrf_token" value={csrfToken} />
    <Button isSmall type="submit">
      Log out
    </Button>
  </form>
)

const themeNames = { system: 'System', light: 'Light', dark: 'Dark' }

function ThemeSwitch(): ReactNode {
  const [theme, setTheme] = useState(readTheme)
  return (
    <Button
      isSmall
      onClick={() => {
        const next = nextTheme(theme)
        applyTheme(next)
        setTheme(next)
      }}
    >
      Theme: {themeNames[theme]}
    </Button>
  )
}
