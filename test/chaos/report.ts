import { readFile, writeFile } from 'node:fs/promises'
import { type Observation, type Result, isGood, secondsOf, textOf } from './run.ts'

const intro = `# Chaos report

\`npm run chaos\` writes this page from its last run of each part. It starts real clusters from Debian's packages and the
service's own processes (two cores, two collectors, a gateway, two sidecars), puts load on them, and breaks one thing
after the other. One signer writes its events to Kafka, the other pushes them to its sidecar. What an operator sets up,
and which times to expect: [failover](failover.md).

The times are from one machine with two processors that runs all of it. They count from the moment of the kill or, for
an interruption that ends, from its end.
`

const separator = '\n## '

/** Replaces the sections of these results in the report, and keeps the others. */
export async function writeReport(file: string, results: readonly Result[]): Promise<void> {
  if (results.length === 0) return
  const old = await readFile(file, 'utf8').catch(() => '')
  const sections = new Map<string, string>()
  for (const section of old.split(separator).slice(1))
    sections.set(section.split('\n')[0] ?? '', section.trimEnd())
  for (const result of results) sections.set(result.title, sectionOf(result))
  const text = [intro.trimEnd(), ...[...sections.values()].map((section) => `## ${section}`)]
  await writeFile(file, `${text.join('\n\n')}\n`)
}

function sectionOf(result: Result): string {
  const { title, name, setup, seed, seconds, observations, checks, plants, figures } = result
  const counts = Object.entries(figures).map(([what, count]) => `${count} ${what}`)
  return [
    title,
    '',
    `${setup} ${isGood(result) ? 'Every invariant held.' : '**An invariant is broken.**'}`,
    '',
    `Run for ${seconds} s: ${counts.join(', ')}. Repeat it: \`npm run chaos -- --only ${name} --seed ${seed}\`.`,
    '',
    '| at | broken | writes | calls at the signers | tickets booked |',
    '|---|---|---|---|---|',
    ...observations.map(rowOf),
    '',
    '| invariant | checked | result |',
    '|---|---|---|',
    ...checks.map(
      ({ claim, counted, faults }) => `| ${claim} | ${counted} | ${resultOf(faults)} |`,
    ),
    '',
    `The checks also found each planted damage: ${plants.map(({ name, found }) => `${name}${found === null ? ' (**not found**)' : ''}`).join(', ')}.`,
  ].join('\n')
}

const resultOf = (faults: readonly string[]): string =>
  faults.length === 0 ? 'holds' : `**broken**: ${faults.join('; ')}`

const rowOf = ({ at, what, writes, calls, ticketsMs, notes, faults }: Observation): string => {
  const tickets = ticketsMs === null ? 'not in a minute' : `after ${secondsOf(ticketsMs)}`
  const found = faults.length === 0 ? '' : `; **${faults.join('; ')}**`
  const noted = notes.map((note) => `; ${note}`).join('')
  return `| ${at} s | ${what}${noted}${found} | ${textOf(writes)} | ${textOf(calls)} | ${tickets} |`
}
