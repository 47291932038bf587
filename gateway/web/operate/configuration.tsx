import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { type Configuration as Processes, configurationQuery } from '../api/operate.ts'
import { Answer } from '../ui/answer.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { useSearchText } from '../ui/search/search-text.ts'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

type Process = Processes['processes'][number]
type Setting = Process['settings'][number]

/** The settings with which core and gateway run. Nothing changes here. */
export function Configuration(): ReactNode {
  const configuration = useQuery(configurationQuery)
  const { search = '', set = false } = useSearch({ from: '/operate/configuration' })
  return (
    <Page
      title="Configuration"
      about="Every setting of the core and the gateway that answered, as they run now. They are changed where the processes start."
    >
      <Filter search={search} isSet={set} />
      <Answer query={configuration} rows={8}>
        {({ processes }) =>
          processes.map((process) => (
            <ProcessCard key={process.process} process={process} search={search} isSet={set} />
          ))
        }
      </Answer>
    </Page>
  )
}

interface Wanted {
  readonly search: string
  /** Whether only settings without their default are shown. */
  readonly isSet: boolean
}

function Filter({ search, isSet }: Wanted): ReactNode {
  const navigate = useNavigate({ from: '/operate/configuration' })
  const show = (next: Wanted): void =>
    void navigate({
      replace: true,
      resetScroll: false,
      search: {
        ...(next.search !== '' && { search: next.search }),
        ...(next.isSet && { set: true }),
      },
    })
  const [text, setText] = useSearchText(search, (sought) => show({ search: sought, isSet }))
  return (
    <div className="row" role="search">
      <label>
        Search
        <input
          type="search"
          maxLength={200}
          value={text}
          placeholder="Name, text or value"
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <label className="choice">
        <input
          type="checkbox"
          checked={isSet}
          onChange={(event) => show({ search, isSet: event.target.checked })}
        />
        Only settings that are set
      </label>
    </div>
  )
}

const titles: Readonly<Record<string, string>> = {
  core: 'Core',
  gateway: 'Gateway',
  'all-in-one': 'All in one',
}

function ProcessCard({ process, ...wanted }: Wanted & { process: Process }): ReactNode {
  const title = titles[process.process] ?? process.process
  const found = process.settings.filter((setting) => isFound(setting, wanted))
  return (
    <section className="card" aria-label={title}>
      <h2>{title}</h2>
      <p className="soft" role="status">
        {found.length} of {process.settings.length} settings
      </p>
      {found.length > 0 ? (
        <SettingTable label={`Table of settings of ${title}`} settings={found} />
      ) : (
        <Empty>No setting matches.</Empty>
      )}
    </section>
  )
}

const isDefault = ({ source }: Setting): boolean => source === 'default' || source === 'unset'

function isFound(setting: Setting, { search, isSet }: Wanted): boolean {
  if (isSet && isDefault(setting)) return false
  const { name, meaning, value = '' } = setting
  return [name, meaning, value].some((text) => text.toLowerCase().includes(search.toLowerCase()))
}

const SettingTable = ({
  label,
  settings,
}: {
  label: string
  settings: readonly Setting[]
}): ReactNode => (
  <TableBox label={label}>
    <table>
      <thead>
        <tr>
          <th scope="col">Setting</th>
          <th scope="col">From</th>
          <th scope="col">Value</th>
          <th scope="col">Default</th>
        </tr>
      </thead>
      <tbody>
        {settings.map((setting) => (
          <tr key={setting.name}>
            <th scope="row">
              <code>{setting.name}</code> <Badges setting={setting} />
              <small className="soft">{setting.meaning}</small>
            </th>
            <td>{setting.source === 'unset' ? 'nowhere' : <Name>{setting.source}</Name>}</td>
            <td>{showValue(setting)}</td>
            <td>
              {setting.defaultValue === undefined ? 'none' : <Name>{setting.defaultValue}</Name>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

const Badges = ({ setting: { secret, reloads } }: { setting: Setting }): ReactNode => (
  <>
    {secret && <span className="badge">secret</span>}{' '}
    {reloads && <span className="badge">SIGHUP reloads it</span>}
  </>
)

function showValue({ secret, source, value }: Setting): ReactNode {
  if (secret) return source === 'unset' ? 'not set' : 'set'
  return value === undefined ? 'not set' : <Name>{value}</Name>
}
