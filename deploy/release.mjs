import { execFileSync } from 'node:child_process'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/**
 * `npm run release -- 0.2.0` prepares a release (CONTRIBUTING.md, "Releases"): its number in every
 * file, a dated section of the changelog, the contract's baseline and the last migration. With
 * `--check` it prints what does not belong to the release of package.json, and fails if there is
 * something.
 */

const root = process.env.TOLLGATE_RELEASE_ROOT ?? fileURLToPath(new URL('..', import.meta.url))
const read = (path) => readFileSync(`${root}/${path}`, 'utf8')
const write = (path, text) => writeFileSync(`${root}/${path}`, text)
const number = String.raw`\d+\.\d+\.\d+`

/** Where the number of the release is. Each pattern matches the text before it, and at least once. */
const places = [
  { path: 'package.json', before: /^ {2}"version": "/m },
  { path: 'package-lock.json', before: /^ {2}"version": "/m },
  { path: 'package-lock.json', before: /^ {6}"name": "tollgate",\n {6}"version": "/m },
  { path: 'deploy/release.json', before: /^ {2}"version": "/m },
  { path: 'deploy/helm/tollgate/Chart.yaml', before: /^version: /m },
  { path: 'deploy/helm/tollgate/Chart.yaml', before: /^appVersion: /m },
  { path: 'deploy/docker/compose.yaml', before: /\$\{TOLLGATE_IMAGE:-tollgate:/ },
  { path: 'deploy/docker/Dockerfile', before: /org\.opencontainers\.image\.version=/ },
  { path: 'docs/install.md', before: /docker build .* -t tollgate:/ },
  { path: 'docs/install.md', before: /docker run .* tollgate:/ },
]

const patternOf = ({ before }) => new RegExp(`(${before.source})(${number})`, before.flags)
const lastMigration = () => readdirSync(`${root}/core/db/migrations`).sort().at(-1)

/** Returns what is not as the release `version` has it. */
function findProblems(version) {
  const problems = []
  for (const place of places) {
    const [, , found] = patternOf(place).exec(read(place.path)) ?? []
    if (found !== version)
      problems.push(`${place.path}: has ${found ?? 'no version'} instead of ${version}`)
  }
  const [first, second = ''] = [...read('CHANGELOG.md').matchAll(/^## (.*)$/gm)].map(
    ([, title]) => title,
  )
  if (first !== 'Unreleased') problems.push('CHANGELOG.md: begins without "## Unreleased"')
  if (!new RegExp(`^${version.replaceAll('.', '\\.')} \\(\\d{4}-\\d{2}-\\d{2}\\)$`).test(second))
    problems.push(`CHANGELOG.md: "## ${second}" is not the dated section of ${version}`)
  const { migration } = JSON.parse(read('deploy/release.json'))
  if (!readdirSync(`${root}/core/db/migrations`).includes(migration))
    problems.push(`deploy/release.json: there is no migration ${migration}`)
  return problems
}

/** Whether `a` is a later version than `b`. */
function isLater(a, b) {
  const [left, right] = [a, b].map((version) => version.split('.').map(Number))
  const place = left.findIndex((part, i) => part !== right[i])
  return place >= 0 && left[place] > right[place]
}

function prepare(version) {
  const { version: last } = JSON.parse(read('package.json'))
  if (!new RegExp(`^${number}$`).test(version)) fail([`${version} is not a version`])
  if (!isLater(version, last)) fail([`${version} is not later than ${last}`])
  const notes = /^## Unreleased\n([\s\S]*?)^## /m.exec(read('CHANGELOG.md'))?.[1]?.trim()
  if (!notes) fail(['CHANGELOG.md: nothing is under "## Unreleased"'])
  for (const place of places)
    write(place.path, read(place.path).replace(patternOf(place), `$1${version}`))
  const release = { version, migration: lastMigration() }
  write('deploy/release.json', `${JSON.stringify(release, null, 2)}\n`)
  const today = new Date().toISOString().slice(0, 10)
  write(
    'CHANGELOG.md',
    read('CHANGELOG.md').replace(/^## Unreleased$/m, `## Unreleased\n\n## ${version} (${today})`),
  )
  execFileSync('buf', ['build', 'proto', '-o', 'proto/baseline.binpb'], { cwd: root })
  const problems = findProblems(version)
  if (problems.length > 0) fail(problems)
  process.stdout.write(
    `${version} is prepared. Commit it as "release: ${version}", and tag that commit v${version}.\n`,
  )
}

function fail(problems) {
  for (const problem of problems) process.stderr.write(`release: ${problem}\n`)
  process.exit(1)
}

const [argument] = process.argv.slice(2)
if (argument === undefined) fail(['npm run release -- VERSION, or --check'])
if (argument === '--check') {
  const problems = findProblems(JSON.parse(read('package.json')).version)
  if (problems.length > 0) fail(problems)
} else prepare(argument)
