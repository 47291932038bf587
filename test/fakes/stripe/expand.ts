import { StripeFault } from './faults.ts'
import type { World } from './world.ts'

type Fields = Record<string, unknown>

/**
 * Returns a copy of `answer` in which the fields that `paths` name hold their objects instead of
 * ids.
 */
export function expandFields(answer: object, paths: readonly string[], world: World): Fields {
  const copy: Fields = { ...answer }
  for (const path of paths) expandPath(copy, path.split('.'), world)
  return copy
}

function expandPath(target: Fields, path: readonly string[], world: World): void {
  const [name = '', ...rest] = path
  if (!Object.hasOwn(target, name))
    throw StripeFault.invalid(`This property cannot be expanded (${name}).`)
  const value = target[name]
  if (Array.isArray(value)) {
    target[name] = value.map((item: unknown) => expandIn(item, rest, world))
    return
  }
  target[name] = expandIn(
    typeof value === 'string' ? (world.find(value) ?? value) : value,
    rest,
    world,
  )
}

function expandIn(value: unknown, rest: readonly string[], world: World): unknown {
  if (typeof value !== 'object' || value === null) return value
  const copy: Fields = { ...value }
  if (rest.length > 0) expandPath(copy, rest, world)
  return copy
}
