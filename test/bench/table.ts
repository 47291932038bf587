import { type Finding, isMet } from './row.ts'

const head = ['row', 'measured', 'middle half', 'target', 'result', 'figures']

/** Formats the findings as aligned columns. */
export function table(findings: readonly Finding[]): string {
  const lines = [head, ...findings.map(lineOf)]
  const widths = head.map((_, column) =>
    Math.max(...lines.map((line) => line[column]?.length ?? 0)),
  )
  const rule = widths.map((width) => '-'.repeat(width))
  return [head, rule, ...lines.slice(1)]
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

function lineOf(finding: Finding): string[] {
  const { name, value, unit, spread, target, detail } = finding
  const show = (number: number): string => withUnit(number, unit)
  return [
    name,
    show(value),
    spread ? `${show(spread.low)} - ${show(spread.high)}` : '',
    target === null
      ? ''
      : 'atLeast' in target
        ? `>= ${show(target.atLeast)}`
        : `<= ${show(target.atMost)}`,
    target === null ? '' : isMet(finding) ? 'pass' : 'FAIL',
    detail,
  ]
}

const withUnit = (value: number, unit: Finding['unit']): string =>
  unit === 'MB' ? `${value.toFixed(0)} MB` : `${value.toFixed(2)}${unit && ` ${unit}`}`

/** Formats a number as `12,345`. */
export const count = (value: number): string => Math.round(value).toLocaleString('en-US')
