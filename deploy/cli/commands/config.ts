import { readCoreConfig } from '../../../core/config.ts'
import { type Setting, createEnvReader } from '../../../core/lib/env.ts'
import { readLogLevel } from '../../../core/lib/process.ts'
import { readGatewayConfig } from '../../../gateway/config.ts'
import { readSidecarConfig } from '../../../sidecar/config.ts'
import { dataDirOf } from '../../all-in-one/data-dir.ts'
import { type Command, parse, printJson, printLines } from '../command.ts'

export const config: Command = {
  summary: 'lists every setting with its value, source and meaning',
  help: `tollgate config [--json]
  Lists every setting: its value (secrets hidden), where it comes from, and what it means. Says what is wrong, and
  exits 1 then. Secrets and the database that all-in-one provides by itself are named as such.
`,
  run: async (argv) => {
    const { values } = parse(argv, { json: { type: 'boolean' } })
    const { settings, problems } = readAll()
    if (values.json) printJson({ settings, problems })
    else {
      printLines(
        settings.flatMap((setting) => [
          `${setting.name}=${setting.value}  (${setting.source})`,
          `    ${setting.meaning}`,
        ]),
      )
      if (problems.length > 0) printLines(['', ...problems.map((problem) => `problem: ${problem}`)])
    }
    return problems.length > 0 ? 1 : 0
  },
}

// What `npm start` makes by itself when it is not set.
const provided = new Set([
  'DATABASE_URL',
  'CORE_TOKEN',
  'KEY_ENCRYPTION_KEY',
  'SECRET_PEPPERS',
  'WEBHOOK_SECRET',
])

function readAll() {
  const reader = createEnvReader(process.env)
  readCoreConfig(reader)
  readGatewayConfig(reader)
  readSidecarConfig(reader)
  readLogLevel(reader)
  reader.port('ADMIN_PORT', {
    fallback: '9090',
    meaning: 'Loopback port of metrics and health, all in one process.',
  })
  const own: Setting[] = [
    {
      name: 'TOLLGATE_DATA_DIR',
      value: dataDirOf(process.env),
      secret: false,
      source: process.env['TOLLGATE_DATA_DIR'] ? 'environment' : 'default',
      meaning:
        'Folder of the all-in-one service: embedded database, secrets, quickstart file, log.',
    },
  ]
  const byName = new Map(
    [...own, ...reader.settings].map((setting) => [setting.name, shown(setting)]),
  )
  const settings = [...byName.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const problems = reader.problems.filter(
    (line) => ![...provided].some((name) => line.startsWith(name) && !process.env[name]),
  )
  return { settings, problems: [...new Set(problems)] }
}

function shown(setting: Setting) {
  const { secret, ...rest } = setting
  if (setting.source === 'unset' && provided.has(setting.name))
    return { ...rest, value: '[made by npm start]', source: 'all-in-one' }
  return secret && setting.value !== '' ? { ...rest, value: '[hidden]' } : rest
}
