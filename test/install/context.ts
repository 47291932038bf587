import { readFileSync } from 'node:fs'
import { listFiles } from '../support/source/source.ts'
import { dockerfilePath } from './dockerfile.ts'

/** Rules of a .dockerignore file: the last one that matches a path decides. */
const rules = (): { readonly pattern: RegExp; readonly isSent: boolean }[] =>
  readFileSync(`${dockerfilePath}.dockerignore`, 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const isSent = line.startsWith('!')
      return { pattern: toPattern(isSent ? line.slice(1) : line), isSent }
    })

/** A pattern that also matches everything below a matching folder. */
function toPattern(glob: string): RegExp {
  const parts = glob.split(/(\*\*\/|\*)/).map((part) => {
    if (part === '**/') return '(?:.*/)?'
    return part === '*' ? '[^/]*' : part.replace(/[.+?^${}()|[\]\\]/g, '\\$&')
  })
  return new RegExp(`^${parts.join('')}(?:/.*)?$`)
}

/** The project's files that a build of the image receives. */
export function contextFiles(): string[] {
  const all = rules()
  return listFiles('.').filter(
    (path) => all.findLast(({ pattern }) => pattern.test(path))?.isSent ?? true,
  )
}
