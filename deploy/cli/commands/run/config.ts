import { didYouMean } from '../../../../core/lib/names/did-you-mean.ts'
import { unknownSettings } from '../../../../core/lib/names/unknown-settings.ts'
import type { Setting } from '../../../../core/lib/env.ts'
import { type Command, UsageError, parse } from '../../command.ts'
import { report } from '../../output.ts'
import { isProvided, readSettings } from '../../settings.ts'

export const config: Command = {
  summary: 'lists every setting with its value, source and meaning',
  help: {
    usages: [
      {
        syntax: 'tollgate config [NAME] [--json]',
        text:
          'Lists every setting, or the named one: its value (secrets are hidden), the source of the value, and its ' +
          'meaning. The command also reports wrong settings, and then exits with 1. Secrets and the database that ' +
          'the all-in-one service makes for itself are marked.',
      },
    ],
    examples: ['./tollgate config', './tollgate config RATE_FIXED'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {})
    const [name, ...rest] = positionals
    if (rest.length > 0) throw new UsageError('config takes one NAME')
    const { settings: all, problems, warnings } = readAll()
    if (name === undefined)
      report(values, { settings: all, problems, warnings }, () => [
        ...all.flatMap(linesOf),
        ...(warnings.length > 0 ? ['', ...warnings.map((line) => `warning: ${line}`)] : []),
        ...(problems.length > 0 ? ['', ...problems.map((problem) => `problem: ${problem}`)] : []),
      ])
    const isRelevant = (text: string): boolean => name === undefined || text.startsWith(`${name} `)
    const reported = problems.filter(isRelevant)
    if (name !== undefined) {
      const setting = findSetting(all, name)
      report(values, { ...setting, problems: reported }, () => [
        ...linesOf(setting),
        ...reported.map((problem) => `problem: ${problem}`),
      ])
    }
    return reported.length > 0 ? 1 : 0
  },
}

function readAll() {
  const { settings, problems } = readSettings(process.env)
  return { settings: settings.map(visible), problems, warnings: unknownSettings(process.env) }
}

function findSetting(all: readonly Visible[], name: string): Visible {
  const setting = all.find((one) => one.name === name.toUpperCase())
  if (setting) return setting
  const names = all.map((one) => one.name)
  throw new UsageError(`there is no setting "${name}"${didYouMean(name.toUpperCase(), names)}`)
}

const linesOf = (setting: Visible): string[] => [
  `${setting.name}=${setting.value}  (${setting.source})`,
  `    ${setting.meaning}`,
]

type Visible = Omit<Setting, 'secret' | 'source'> & { readonly source: string }

function visible({ secret, ...setting }: Setting): Visible {
  if (setting.source === 'unset' && isProvided(setting.name))
    return { ...setting, value: '[made by npm start]', source: 'all-in-one' }
  return secret && setting.value !== '' ? { ...setting, value: '[hidden]' } : setting
}
