/**
 * Reads the tables of the product's specification: routes with their credentials, fields with type
 * and obligation, and statuses. The result is stored in
 * test/gateway/platform-api/docs/specification.json, because a clone does not include the
 * specification.
 */

export interface SpecifiedRoute {
  /** `builder` or `platform`. */
  readonly surface: string
  readonly method: string
  readonly path: string
  /** Query parameters in the path column. */
  readonly query: readonly string[]
  /** Names of security schemes; null if the table gives none. An empty list is a public route. */
  readonly auth: readonly string[] | null
  /** Members of the JSON body in the row. */
  readonly body: readonly SpecifiedField[]
  readonly answers: readonly number[]
}

export interface SpecifiedField {
  readonly name: string
  /** Type and format, such as `string/email`; absent if the table has no type. */
  readonly type?: string | undefined
  readonly isNullable?: boolean | undefined
  readonly values?: readonly string[] | undefined
  /** Absent if the table does not distinguish. */
  readonly isRequired?: boolean | undefined
}

export interface Specification {
  readonly routes: readonly SpecifiedRoute[]
  /** By the heading, or the line, above the table. */
  readonly fields: Readonly<Record<string, readonly SpecifiedField[]>>
  /** By endpoint group. */
  readonly statuses: Readonly<Record<string, readonly number[]>>
}

interface Table {
  readonly section: string
  readonly title: string
  readonly columns: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

/** Returns the facts in every table of routes, fields or statuses. */
export function readSpecification(markdown: string): Specification {
  const tables = readTables(markdown)
  const titled = tables
    .filter(({ columns }) => columns[0] === 'Field' || columns[0] === 'Parameter')
    .map((table) => [table.title, table.rows.flatMap((row) => fieldsOf(table, row))] as const)
  return {
    routes: tables
      .filter(({ columns }) => columns.includes('Path'))
      .flatMap((table) => table.rows.flatMap((row) => routesOf(table, row))),
    fields: Object.fromEntries(titled.filter(([, fields]) => fields.length > 0)),
    statuses: statusesOf(tables.find(({ columns }) => columns[0] === 'Endpoint group')),
  }
}

function readTables(markdown: string): Table[] {
  const tables: Table[] = []
  let section = ''
  let title = ''
  let lines: string[] = []
  for (const line of [...markdown.split('\n'), '']) {
    if (line.startsWith('|')) lines.push(line)
    else {
      const [columns, , ...rows] = lines.map(cellsOf)
      if (columns) tables.push({ section, title, columns, rows })
      lines = []
      if (line.startsWith('#')) section = line.replace(/^#+ /, '')
      if (line !== '') title = line.replace(/^#+ /, '').replace(/:$/, '')
    }
  }
  return tables
}

const cellsOf = (line: string): string[] =>
  line
    .slice(1, -1)
    .split('|')
    .map((cell) => cell.trim())

const quotedIn = (text: string): string[] =>
  [...text.matchAll(/`([^`]+)`/g)].map(([, it = '']) => it)

function cellOf({ columns }: Table, row: readonly string[], name: RegExp): string | undefined {
  const index = columns.findIndex((column) => name.test(column))
  return index === -1 ? undefined : row[index]
}

function routesOf(table: Table, row: readonly string[]): SpecifiedRoute[] {
  const methods = cellOf(table, row, /^Method$/) ?? ''
  const answer = cellOf(table, row, /^Response$|^Request \/ response$/) ?? ''
  let base = ''
  return (cellOf(table, row, /^Path$/) ?? '').split(' and ').flatMap((part) => {
    const [first = '', under] = quotedIn(part)
    const [written = '', search = ''] = first.split('?')
    const path = absolutePath(written, under ?? base)
    base = path
    const own = /[A-Z]{3,}/.test(part.split('`')[0] ?? '') ? (part.split('`')[0] ?? '') : methods
    return own.split(',').map((method) => ({
      surface: table.section.startsWith('Surface A') ? 'builder' : 'platform',
      method: method.trim(),
      path,
      query: search === '' ? [] : [search.split('=')[0] ?? ''],
      auth: authOf(table, row, method.trim()),
      body: bodyOf(row),
      answers: (answer.match(/\b[2-5]\d\d\b/g) ?? []).map(Number),
    }))
  })
}

/**
 * Completes the short forms of a path: `.../x`, only the last segments, and a path relative to
 * another one.
 */
function absolutePath(written: string, base: string): string {
  if (written.startsWith('/api/') || base === '') return written
  if (written.startsWith('/.well-known')) return base + written
  const [start = ''] = written
    .replace(/^\.\.\./, '')
    .split('/')
    .slice(1)
  return base.slice(0, base.lastIndexOf(`/${start}`)) + written.replace(/^\.\.\./, '')
}

const schemes: readonly (readonly [RegExp, readonly string[]])[] = [
  [/tenant Basic/, ['tenantBasic']],
  [/M2M Basic|optional Basic/, ['m2mBasic']],
  [/M2M(?! Basic| client)/, ['m2mBasic', 'machineToken']],
  [/Session|app owner/, ['session']],
  [/User JWT|Bearer JWT/, ['userToken']],
  [/sk_\*` only|Bearer = (the|API) key/, ['apiKey']],
  [/shared secret/, ['sharedSecret']],
]

function authOf(table: Table, row: readonly string[], method: string): readonly string[] | null {
  const column = cellOf(table, row, /^Auth$/)
  if (column === 'none') return []
  const cell = column ?? `${cellOf(table, row, /^Request$/) ?? ''} ${row.at(-1) ?? ''}`
  // A cell may give one credential per method: `GET M2M or Session; PUT Session`.
  const perMethod = cell.split('; ').find((part) => part.startsWith(`${method} `))
  const found = schemesIn(perMethod ?? cell)
  if (column !== undefined || found.length > 0) return found.length > 0 ? found : null
  const ofSection = schemesIn(table.section)
  return ofSection.length > 0 ? ofSection : null
}

const schemesIn = (text: string): string[] => [
  ...new Set(schemes.flatMap(([pattern, names]) => (pattern.test(text) ? names : []))),
]

/**
 * Returns the members after the word JSON. They are required unless they end with `?`; where some
 * are marked as required, only those are.
 */
function bodyOf(row: readonly string[]): SpecifiedField[] {
  const cell =
    row.find((each) => /\bJSON\b.*`\w/.test(each.split(';')[0] ?? ''))?.split(';')[0] ?? ''
  const [before = '', text = ''] = cell.split(/\bJSON\b/)
  const members = [...text.matchAll(/`(\w+)(\??)`(?: \(([^)]*)\))?/g)]
  const marked = members.some(([, , , note]) => note?.includes('required'))
  return members.map(([, name = '', optional, note = '']) => ({
    name,
    isRequired: marked
      ? note.includes('required')
      : optional === '' && !before.includes('optional'),
  }))
}

function fieldsOf(table: Table, row: readonly string[]): SpecifiedField[] {
  const type = cellOf(table, row, /^Type$/)
  const required = cellOf(table, row, /^Required$/)
  const notes = row.at(-1) ?? ''
  return quotedIn(row[0] ?? '').map((name) => ({
    name: name.replace(/\[\]$/, ''),
    ...(type !== undefined && typeOf(type)),
    ...valuesOf(type, notes),
    ...(required !== undefined && { isRequired: required === 'yes' }),
  }))
}

function typeOf(text: string): Pick<SpecifiedField, 'type' | 'isNullable'> {
  const [, base = 'string'] = /\b(object|array|integer|number|boolean)\b/.exec(text) ?? []
  const format = /\b(email|URI|int64|date-time|UUID)\b/.exec(text)?.[1]
  return {
    type: format === undefined ? base : `${base}/${format.toLowerCase()}`,
    ...(/or null/.test(text) && { isNullable: true }),
  }
}

function valuesOf(type: string | undefined, notes: string): Pick<SpecifiedField, 'values'> {
  const text = type === 'enum' ? notes.replace(/`[^`]+` is NOT a value/, '') : (type ?? '')
  const values = quotedIn(text)
  return values.length > 0 ? { values } : {}
}

function statusesOf(table: Table | undefined): Record<string, number[]> {
  const statuses: Record<string, number[]> = {}
  for (const [group = '', status = ''] of table?.rows ?? [])
    (statuses[group] ??= []).push(...(status.match(/\d{3}/g) ?? []).map(Number))
  return statuses
}
