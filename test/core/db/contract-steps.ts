/** A step of a migration with which the previous release may not run. */
export interface ContractStep {
  readonly file: string
  /** The table or view that it changes. */
  readonly name: string
  /** The changing words, in lower case, such as `drop column fee`. */
  readonly step: string
}

export interface MigrationFile {
  readonly file: string
  readonly text: string
}

/**
 * Finds steps that remove, rename or narrow what the previous release uses. `files` are those after
 * its last one, in order. Tables that they create are left out, because it does not use them.
 */
export function findContractSteps(files: readonly MigrationFile[]): ContractStep[] {
  const statements = files.flatMap(({ file, text }) =>
    statementsOf(text).map((statement) => ({ file, statement })),
  )
  const created = new Set(
    statements.flatMap(
      ({ statement }) => /^create table (?:if not exists )?(\S+)/.exec(statement)?.[1] ?? [],
    ),
  )
  return statements
    .flatMap(({ file, statement }) => stepsOf(statement).map((step) => ({ file, ...step })))
    .filter(({ name }) => !created.has(name))
}

/** Splits SQL into statements of plain words: lower case, without comments, texts and bodies. */
const statementsOf = (text: string): string[] =>
  text
    .replaceAll(/(\$\w*\$)[\s\S]*?\1/g, "''")
    .replaceAll(/\/\*[\s\S]*?\*\//g, ' ')
    .replaceAll(/--.*$/gm, ' ')
    .replaceAll(/'(?:[^']|'')*'/g, "''")
    .toLowerCase()
    .replaceAll('"', '')
    .replaceAll(/\s+/g, ' ')
    .split(';')
    .map((statement) => statement.trim())
    .filter(Boolean)

const kinds = '(?:table|(?:materialized )?view|function|sequence|type|schema|trigger)'
const dropped = new RegExp(`^drop ${kinds} (?:if exists )?([\\w.]+)`)
const renamed = new RegExp(
  `^alter (?:materialized )?(?:view|function|sequence|type) (\\S+) (rename .*|set schema .*)`,
)

function stepsOf(statement: string): Omit<ContractStep, 'file'>[] {
  const [, gone] = dropped.exec(statement) ?? []
  if (gone !== undefined) return [{ name: gone, step: statement }]
  const [, other, change] = renamed.exec(statement) ?? []
  if (other !== undefined && change !== undefined) return [{ name: other, step: change }]
  const [, table, actions] =
    /^alter table (?:if exists )?(?:only )?(\S+) (.*)$/.exec(statement) ?? []
  if (table === undefined || actions === undefined) return []
  return partsOf(actions)
    .filter(isContract)
    .map((step) => ({ name: table, step }))
}

/** Splits the actions of `alter table` at the commas outside of parentheses. */
function partsOf(actions: string): string[] {
  const parts = ['']
  let depth = 0
  for (const letter of actions) {
    if (letter === '(') depth += 1
    if (letter === ')') depth -= 1
    if (letter === ',' && depth === 0) parts.push('')
    else parts[parts.length - 1] += letter
  }
  return parts.map((part) => part.trim())
}

const contracts = [
  /^rename /,
  /^set schema /,
  /^drop (?!constraint )/,
  /^alter (?:column )?\S+ (?:set data )?type /,
  /^alter (?:column )?\S+ (?:set not null|drop default|drop identity)/,
]
const addedColumn = /^add (?:column )?(?!constraint |check |unique |primary |foreign |exclude )/
const hasValue = / default | generated /

/** Whether the previous release may fail because of an action of `alter table`. */
const isContract = (action: string): boolean =>
  contracts.some((pattern) => pattern.test(action)) ||
  (addedColumn.test(action) && / (?:not null|primary key)/.test(action) && !hasValue.test(action))
