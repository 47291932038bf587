import { unknownSettings } from '../../../core/lib/names/unknown-settings.ts'
import type { Setting } from '../../../core/lib/env.ts'
import { type Command, parse } from '../command.ts'
import { printJson, printLines } from '../output.ts'
import { isProvided, readSettings } from '../settings.ts'

export const config: Command = {
  summary: 'lists every setting with its value, source and meaning',
  help: {
    usages: [
      {
        syntax: 'tollgate config [--json]',
        text:
          'Lists every setting: its value (secrets are hidden), where the value comes from, and what it means. The ' +
          'command also names what is wrong, and then exits with 1. Secrets and the database that the all-in-one ' +
          'service makes for itself are marked as such.',
      },
    ],
    examples: ['npx tollgate config'],
  },
  run: async (argv) => {
    const { values } = parse(argv, { json: { type: 'boolean' } })
    const { settings: all, problems } = readSettings(process.env)
    const warnings = unknownSettings(process.env)
    const settings = all.map(visible)
    if (values.json) printJson({ settings, problems, warnings })
    else {
      printLines(
        settings.flatMap((setting) => [
          `${setting.name}=${setting.value}  (${setting.source})`,
          `    ${setting.meaning}`,
        ]),
      )
      if (warnings.length > 0) printLines(['', ...warnings.map((line) => `warning: ${line}`)])
      if (problems.length > 0) printLines(['', ...problems.map((problem) => `problem: ${problem}`)])
    }
    return problems.length > 0 ? 1 : 0
  },
}

function visible(setting: Setting) {
  const { secret, ...rest } = setting
  if (setting.source === 'unset' && isProvided(setting.name))
    return { ...rest, value: '[made by npm start]', source: 'all-in-one' }
  return secret && setting.value !== '' ? { ...rest, value: '[hidden]' } : rest
}
