import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pages } from './pages.ts'

/** `npm run docs` writes the generated pages; with `--check` it fails when one is stale. */

const root = join(import.meta.dirname, '../..')
const isCheck = process.argv.includes('--check')

for (const [path, render] of Object.entries(pages)) {
  const file = join(root, path)
  if (isCheck) check(path, file, render())
  else writeFileSync(file, render())
}

function check(path: string, file: string, text: string): void {
  if (read(file) === text) return
  process.stderr.write(`${path} is stale: run npm run docs and commit it\n`)
  process.exitCode = 1
}

function read(file: string): string | null {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return null
  }
}
