import { StripeFault } from './faults.ts'

/** A form as Stripe's clients encode it: `a[b][0]=c`. */
export interface Form {
  readonly [name: string]: FormValue
}
export type FormValue = string | readonly FormValue[] | Form

type Node = Map<string, Node | string>

const depthMax = 6

/** Parses a query or a form body. Objects whose names are 0, 1, 2 … become arrays. */
export function parseForm(text: string): Form {
  const root: Node = new Map()
  for (const [name, value] of new URLSearchParams(text)) {
    const path = [...name.matchAll(/[^[\]]+|\[\]/g)].map(([part]) => part)
    if (path.length === 0 || path.length > depthMax)
      throw StripeFault.invalid(`Invalid parameter name: ${name}`, { param: name })
    insert(root, path, value)
  }
  return toForm(root)
}

function insert(root: Node, path: readonly string[], value: string): void {
  let node = root
  for (const [at, part] of path.entries()) {
    const name = part === '[]' ? String(node.size) : part
    if (at === path.length - 1) return void node.set(name, value)
    const next = node.get(name)
    const child: Node = next instanceof Map ? next : new Map()
    node.set(name, child)
    node = child
  }
}

const toForm = (node: Node): Form =>
  Object.fromEntries([...node].map(([name, value]) => [name, toValue(value)]))

function toValue(value: Node | string): FormValue {
  if (typeof value === 'string') return value
  const names = [...value.keys()]
  const isArray = names.length > 0 && names.every((name, at) => name === String(at))
  return isArray ? [...value.values()].map(toValue) : toForm(value)
}

/** Reads one level of a form, with Stripe's errors for missing and wrong parameters. */
export const readForm = (form: Form) => ({
  only: (...names: readonly string[]): void => {
    const unknown = Object.keys(form).find((name) => !names.includes(name))
    if (unknown !== undefined)
      throw StripeFault.invalid(`Received unknown parameter: ${unknown}`, {
        param: unknown,
        code: 'parameter_unknown',
      })
  },
  text: (name: string): string | null => {
    const value = form[name]
    return typeof value === 'string' && value !== '' ? value : null
  },
  required: (name: string): string => {
    const value = form[name]
    if (typeof value === 'string' && value !== '') return value
    throw StripeFault.invalid(`Missing required param: ${name}.`, {
      param: name,
      code: 'parameter_missing',
    })
  },
  cents: (name: string): number | null => {
    const value = form[name]
    if (value === undefined) return null
    if (typeof value === 'string' && /^\d{1,12}$/.test(value)) return Number(value)
    throw StripeFault.invalid(`Invalid integer: ${name}`, {
      param: name,
      code: 'parameter_invalid_integer',
    })
  },
  form: (name: string): Form => {
    const value = form[name]
    return typeof value === 'object' && !isList(value) ? value : {}
  },
  list: (name: string): readonly FormValue[] => {
    const value = form[name]
    return isList(value) ? value : []
  },
})

const isList = (value: FormValue | undefined): value is readonly FormValue[] => Array.isArray(value)

/** The texts of a list, for example of `expand`. */
export const textsOf = (values: readonly FormValue[]): string[] =>
  values.filter((value) => typeof value === 'string')

/** The texts of a form, for example of `metadata`. */
export const recordOf = (form: Form): Record<string, string> =>
  Object.fromEntries(
    Object.entries(form).flatMap(([name, value]) =>
      typeof value === 'string' ? [[name, value]] : [],
    ),
  )
