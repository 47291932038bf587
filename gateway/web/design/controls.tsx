import { useMutation } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { ValueForm } from '../ui/form/value-form.tsx'
import { MonthChoice, formatUtcMonth } from '../ui/month-choice.tsx'
import { SearchForm } from '../ui/search/search-form.tsx'
import { type RangeSearch, toRange } from '../ui/usage/range.ts'
import { RangePicker } from '../ui/usage/range-picker.tsx'

export const Controls = (): ReactNode => (
  <>
    <Buttons />
    <Fields />
    <Forms />
    <Dialogs />
  </>
)

const Buttons = (): ReactNode => (
  <section className="card" aria-labelledby="buttons">
    <h2 id="buttons">Buttons</h2>
    <div className="row">
      <Button kind="main">Main action</Button>
      <Button>Other action</Button>
      <Button kind="danger">Takes something away</Button>
      <a className="button" href="#buttons">
        Link
      </a>
    </div>
    <div className="row">
      <Button kind="main" disabled>
        Main action
      </Button>
      <Button disabled>Other action</Button>
      <Button kind="danger" disabled>
        Takes something away
      </Button>
    </div>
    <div className="row">
      <Button isSmall>Small</Button>
      <Button isSmall kind="danger">
        Small
      </Button>
      <Button isSmall disabled>
        Small
      </Button>
    </div>
  </section>
)

function Fields(): ReactNode {
  const [month, setMonth] = useState(() => formatUtcMonth(Date.now()))
  const [search, setSearch] = useState<RangeSearch>({ range: '7d' })
  return (
    <section className="card" aria-labelledby="fields">
      <h2 id="fields">Fields</h2>
      <div className="fields">
        <label>
          Text
          <input defaultValue="ada@example.com" />
        </label>
        <label>
          Empty, with an example
          <input placeholder="10.00" />
        </label>
        <label>
          Disabled
          <input disabled defaultValue="given" />
        </label>
        <label>
          Choice
          <select defaultValue="b">
            <option value="a">First</option>
            <option value="b">Second</option>
          </select>
        </label>
        <label>
          Lines
          <textarea rows={2} defaultValue="A text of several lines" />
        </label>
      </div>
      <fieldset className="choices">
        <legend>Several of a set</legend>
        {['Invoices', 'Payments', 'Keys'].map((name, index) => (
          <label className="choice" key={name}>
            <input type="checkbox" defaultChecked={index === 0} disabled={index === 2} /> {name}
          </label>
        ))}
      </fieldset>
      <MonthChoice month={month} onChange={setMonth} />
      <RangePicker search={search} range={toRange(search, Date.now())} onChoose={setSearch} />
    </section>
  )
}

/** Forms of one value. What cannot be stored is refused, as by a server. */
function Forms(): ReactNode {
  const [search, setSearch] = useState('ada')
  const [count, setCount] = useState('60')
  const change = useMutation({
    mutationFn: async (value: number) => {
      if (value > 100) throw new Error('the plan permits at most 100')
      setCount(`${value}`)
    },
  })
  return (
    <section className="card" aria-labelledby="forms">
      <h2 id="forms">Forms of one value</h2>
      <SearchForm label="Filter of a view" value={search} clear="Show all" onSearch={setSearch} />
      <ValueForm
        label="Calls in a minute (refused above 100)"
        present={count}
        parse={(text) => (/^\d+$/.test(text) ? Number(text) : null)}
        hint="Type a whole number."
        change={change}
        reset={{ label: 'Use the deployment’s', value: 60 }}
      />
    </section>
  )
}

const dialogs = {
  'Ask before an act': { action: 'Withdraw' },
  'Ask to type a name': { action: 'Delete', typed: 'Demo' },
  'While the act runs': { action: 'Delete', isBusy: true },
  'After a refusal': {
    action: 'Delete',
    error: new Error('the app has users with a balance'),
  },
} as const

type DialogName = keyof typeof dialogs

const actMs = 3_000

function Dialogs(): ReactNode {
  const [name, setName] = useState<DialogName | null>(null)
  const close = (): void => setName(null)
  const open = (chosen: DialogName): void => {
    setName(chosen)
    // Nothing else closes it.
    if ('isBusy' in dialogs[chosen]) setTimeout(close, actMs)
  }
  const sample = name && { isBusy: false, error: null, ...dialogs[name] }
  return (
    <section className="card" aria-labelledby="dialogs">
      <h2 id="dialogs">Dialogs</h2>
      <div className="row">
        {Object.keys(dialogs)
          .filter(isDialogName)
          .map((each) => (
            <Button key={each} onClick={() => open(each)}>
              {each}
            </Button>
          ))}
      </div>
      {sample && (
        <Confirm
          title="Take something away?"
          effect="The effect shows here, and whether it can be undone."
          {...sample}
          isBusy={sample.isBusy}
          onConfirm={close}
          onClose={close}
        />
      )}
    </section>
  )
}

const isDialogName = (name: string): name is DialogName => name in dialogs
