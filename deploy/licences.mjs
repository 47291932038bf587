import { readFileSync } from 'node:fs'
import { listShipped } from './shipped.mjs'

/**
 * `npm run licences` lists the packages of the lock file with their licences. With `--check` it
 * prints only the packages whose licence is not allowed, and fails if there is one.
 */

// Licences that allow use in a product of any licence. MPL-2.0 is for tools that are not shipped.
const allowed = new Set([
  '0BSD',
  'Apache-2.0',
  'BlueOak-1.0.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'CC0-1.0',
  'ISC',
  'MIT',
  'MIT-0',
  'PostgreSQL',
  'Unlicense',
])
const allowedForTools = new Set([...allowed, 'MPL-2.0', 'PSF-2.0', 'Python-2.0'])

const lock = process.env.TOLLGATE_LOCK_FILE ?? new URL('../package-lock.json', import.meta.url)
const { packages: locked } = JSON.parse(readFileSync(lock, 'utf8'))
const shipped = listShipped(locked)
const packages = Object.entries(locked)
  .filter(([path]) => path !== '')
  .map(([path, { version, license }]) => ({
    name: path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length),
    version,
    licence: license ?? 'none',
    use: shipped.has(path) ? 'product' : 'tool',
  }))

/** Whether an SPDX expression is allowed: all parts of an AND, any part of an OR. */
function isAllowed({ licence, use }) {
  const names = use === 'tool' ? allowedForTools : allowed
  const text = licence.replace(/^\((.*)\)$/, '$1')
  return text.split(' OR ').some((part) => part.split(' AND ').every((name) => names.has(name)))
}

const isCheck = process.argv.includes('--check')
const refused = packages.filter((each) => !isAllowed(each))
const lines = (isCheck ? refused : packages).map(
  ({ name, version, licence, use }) => `${licence}\t${use}\t${name}@${version}`,
)
process.stdout.write(
  [...new Set(lines)]
    .sort()
    .map((line) => `${line}\n`)
    .join(''),
)
if (isCheck && refused.length > 0) {
  process.stderr.write('these licences are not allowed (deploy/licences.mjs)\n')
  process.exitCode = 1
}
