import { didYouMean } from '../../../../core/lib/names/did-you-mean.ts'
import { unknownSettings } from '../../../../core/lib/settings/unknown.ts'
import type { Setting } from '../../../../core/lib/env.ts'
import { readEnvironment } from '../../../../core/lib/settings/environment.ts'
import { toMessages } from '../../../../core/lib/process.ts'
import { action, createCommand } from '../../command.ts'
import { UsageError, optionalArgument } from '../../options.ts'
import { isProvided, processNames, readSettings } from '../../settings.ts'

export const config = createCommand('config', {
  summary: 'lists every setting with its value, source and meaning; checks them',
  examples: [
    './tollgate config',
    './tollgate config RATE_FIXED',
    'TOLLGATE_CONFIG=./next.yaml ./tollgate config check core',
  ],
  actions: {
    check: action({
      text:
        'Checks the settings of one process, by default of the all-in-one service, as the process does when it ' +
        'starts, but opens nothing. Prints each problem and warning, and exits with 1 if there is a problem. Run it ' +
        'with the environment and the settings file of a roll-out, before it.',
      options: { process: optionalArgument(processNames.join('|')) },
      run: ({ process: name = 'all-in-one' }) => check(name),
      json: (answer) => answer,
      lines: ({ process: name, problems, warnings }) => [
        problems.length === 0 ? `${name} can start with these settings.` : `${name} cannot start.`,
        ...section('warning', warnings),
        ...section('problem', problems),
      ],
      isFailure: ({ problems }) => problems.length > 0,
    }),
    '': action({
      text:
        'Lists every setting, or the named one: its value (secrets are hidden), the source of the value, and its ' +
        'meaning. The source is the environment, a file, or the default. The command also reports wrong settings, ' +
        'and then exits with 1. Secrets and the database that the all-in-one service makes for itself are marked.',
      options: { name: optionalArgument('NAME') },
      run: async ({ name }) => {
        const all = await readAll()
        if (name === undefined) return all
        const setting = findSetting(all.settings, name)
        const problems = all.problems.filter((line) => line.startsWith(`${setting.name} `))
        return { settings: [setting], problems, warnings: [] }
      },
      json: ({ settings, problems, warnings }, { name }) =>
        name === undefined ? { settings, problems, warnings } : { ...settings[0], problems },
      lines: ({ settings, problems, warnings }) => [
        ...settings.flatMap(linesOf),
        ...section('warning', warnings),
        ...section('problem', problems),
      ],
      isFailure: ({ problems }) => problems.length > 0,
    }),
  },
})

async function check(name: string) {
  if (!processNames.includes(name))
    throw new UsageError(
      `there is no process "${name}"${didYouMean(name, processNames)}; they are ${processNames.join(', ')}`,
    )
  const unknown = unknownSettings(process.env)
  try {
    const { problems, warnings } = readSettings(await readEnvironment(process.env), name)
    return { process: name, problems, warnings: [...warnings, ...unknown] }
  } catch (error) {
    return { process: name, problems: toMessages(error), warnings: unknown }
  }
}

/** Labelled lines below an empty one, if there are any. */
const section = (label: string, lines: readonly string[]): string[] =>
  lines.length === 0 ? [] : ['', ...lines.map((line) => `${label}: ${line}`)]

async function readAll() {
  const { settings, problems, warnings } = readSettings(await readEnvironment(process.env))
  const unknown = unknownSettings(process.env)
  return { settings: settings.map(visible), problems, warnings: [...warnings, ...unknown] }
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
