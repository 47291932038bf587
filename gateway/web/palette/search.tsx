import { type KeyboardEvent, type ReactNode, useId, useState } from 'react'
import { type Command, findCommands } from './commands.ts'
import { keepRecent, readRecent } from './recent.ts'

interface SearchProps {
  readonly commands: readonly Command[]
  readonly text: string
  readonly isBusy: boolean
  readonly onText: (text: string) => void
  readonly onDone: () => void
}

const shownMax = 60

/** A field with a list of commands: the combobox pattern of ARIA, without a pointer. */
export function Search({ commands, text, isBusy, onText, onDone }: SearchProps): ReactNode {
  const [recent] = useState(readRecent)
  const [chosen, setChosen] = useState(0)
  const listId = useId()
  const found = findCommands(commands, text, recent).slice(0, shownMax)
  const active = Math.min(chosen, found.length - 1)
  const idOf = (index: number): string => `${listId}-${index}`
  const choose = (index: number): void => {
    setChosen(index)
    document.getElementById(idOf(index))?.scrollIntoView({ block: 'nearest' })
  }
  const run = (command: Command | undefined): void => {
    if (!command) return
    keepRecent(command)
    onDone()
    command.run()
  }
  const onKeyDown = (event: KeyboardEvent): void => {
    const target = moves[event.key]?.(active, found.length)
    if (target !== undefined) choose(target)
    else if (event.key === 'Enter' && !event.nativeEvent.isComposing) run(found[active])
    else return
    event.preventDefault()
  }
  return (
    <>
      <input
        type="text"
        role="combobox"
        aria-label="Search for a page, an app, a user, a ticket or an action"
        aria-expanded="true"
        aria-controls={listId}
        aria-autocomplete="list"
        {...(found.length > 0 && { 'aria-activedescendant': idOf(active) })}
        placeholder="Page, app, user, ticket or action"
        autoComplete="off"
        spellCheck={false}
        autoFocus
        value={text}
        onChange={(event) => {
          onText(event.target.value)
          setChosen(0)
        }}
        onKeyDown={onKeyDown}
      />
      <ul id={listId} role="listbox" aria-label="Commands" className="commands">
        {found.map((command, index) => (
          <li
            key={`${command.group} ${command.id}`}
            id={idOf(index)}
            role="option"
            aria-selected={index === active}
            onMouseMove={() => setChosen(index)}
            onClick={() => run(command)}
          >
            <span className="name">{command.name}</span>
            <small>
              {[command.about, command.group].filter((part) => part !== undefined).join(' · ')}
            </small>
          </li>
        ))}
      </ul>
      <p className="soft" role="status">
        {toSummary(found.length, isBusy)}
      </p>
    </>
  )
}

const toSummary = (count: number, isBusy: boolean): string => {
  if (count > 0) return count === 1 ? '1 command' : `${count} commands`
  return isBusy
    ? 'Looking …'
    : 'Nothing fits. A user is found by the beginning of its id or e-mail address, a ticket by its event id.'
}

/** Where a key leads in a list with `count` rows. */
const moves: Readonly<Record<string, (active: number, count: number) => number>> = {
  ArrowDown: (active, count) => (active + 1) % Math.max(count, 1),
  ArrowUp: (active, count) => (active - 1 + count) % Math.max(count, 1),
  PageDown: (active, count) => Math.min(active + 8, count - 1),
  PageUp: (active) => Math.max(active - 8, 0),
}
