import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readAblations } from '../ablate.ts'

const root = join(import.meta.dirname, '../../..')

describe('ablations', () => {
  it.each(readAblations())('applies $name to this tree', ({ path }) => {
    const apply = (): string =>
      execFileSync('git', ['apply', '--check', path], { cwd: root }).toString()
    expect(apply()).toBe('')
  })
})
