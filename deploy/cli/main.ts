import { readFileSync } from 'node:fs'
import { didYouMean } from '../../core/lib/names/did-you-mean.ts'
import { messageOf } from '../../core/lib/process.ts'
import { account } from './commands/account.ts'
import { member } from './commands/apps/member.ts'
import { redirectUri } from './commands/apps/redirect-uri.ts'
import { user } from './commands/apps/user.ts'
import { adjust } from './commands/money/adjust.ts'
import { app } from './commands/apps/app.ts'
import { audit } from './commands/audit.ts'
import { archive } from './commands/archive.ts'
import { collector } from './commands/collector.ts'
import { config } from './commands/config.ts'
import { decision } from './commands/decision.ts'
import { exportTickets } from './commands/export.ts'
import { grant } from './commands/money/grant.ts'
import { holds } from './commands/money/holds.ts'
import { importTickets } from './commands/import.ts'
import { keys } from './commands/keys.ts'
import { limits } from './commands/limits.ts'
import { loss } from './commands/loss.ts'
import { core, demo, gateway, sidecar, signerDouble, start } from './commands/programs.ts'
import { billing } from './commands/money/billing.ts'
import { quota } from './commands/money/quota.ts'
import { quarantine } from './commands/quarantine.ts'
import { rate } from './commands/money/rate.ts'
import { rebuild } from './commands/rebuild.ts'
import { outbox } from './commands/outbox.ts'
import { reconcile } from './commands/reconcile.ts'
import { signer } from './commands/signer.ts'
import { status } from './commands/status.ts'
import { verify } from './commands/verify.ts'
import { type Command, UsageError } from './command.ts'
import { withFlag } from './flags.ts'
import { renderHelp } from './help.ts'

/** Every command by its name, in the order in which `--help` lists them. */
export const commands: Readonly<Record<string, Command>> = {
  start,
  core,
  gateway,
  sidecar,
  collector,
  demo,
  app,
  member,
  'redirect-uri': redirectUri,
  user,
  grant,
  account,
  keys,
  rate,
  status,
  adjust,
  limits,
  signer,
  quarantine,
  quota,
  billing,
  verify,
  rebuild,
  outbox,
  reconcile,
  audit,
  loss,
  holds,
  decision,
  export: exportTickets,
  import: importTickets,
  archive,
  config,
  'signer-double': signerDouble,
}

const help = `tollgate: identity, metering and billing beside a remote signer

  npx tollgate <command> [options]

${Object.entries(commands)
  .map(([name, { summary }]) => `  ${name.padEnd(14)} ${summary}`)
  .join('\n')}
  help           this text; "tollgate help <command>" tells more
  --version      the version

Commands that speak to a running core find it by --target HOST:PORT, by CORE_TARGET and CORE_TOKEN_OPERATOR, or in the
data directory of an all-in-one service (TOLLGATE_DATA_DIR, default .tollgate). Those that write need --target, unless
core is the one of that directory.

Exit codes: 0 success, 1 failure or a difference, 2 wrong usage.
`

/** Runs one command and resolves to the exit code: 0 for success, 1 for failure, 2 for wrong usage. */
export async function main(argv: readonly string[]): Promise<number> {
  const [name = 'help', ...rest] = argv
  if (name === '--version' || name === 'version') return print(`tollgate ${version()}\n`, 0)
  if (name === 'help' || asksForHelp([name]))
    return rest[0] === undefined ? print(help, 0) : run(rest[0], ['--help'])
  return run(name, rest)
}

async function run(name: string, argv: readonly string[]): Promise<number> {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (!command) {
    const word = name.slice(0, 40)
    const hint = didYouMean(word, Object.keys(commands))
    return print(`tollgate: there is no command "${word}"${hint}; see npx tollgate --help\n`, 2)
  }
  if (asksForHelp(argv)) return print(renderHelp(command.help), 0)
  try {
    return await command.run(argv)
  } catch (error) {
    const hint = error instanceof UsageError ? `; see npx tollgate ${name} --help` : ''
    const message = withFlag(messageOf(error), command.help)
    return print(`tollgate: ${message}${hint}\n`, error instanceof UsageError ? 2 : 1)
  }
}

function version(): string {
  const manifest = new URL('../../package.json', import.meta.url)
  return String(JSON.parse(readFileSync(manifest, 'utf8')).version)
}

const asksForHelp = (argv: readonly string[]): boolean =>
  argv.includes('--help') || argv.includes('-h')

function print(text: string, code: number): number {
  const stream = code === 0 ? process.stdout : process.stderr
  stream.write(text)
  return code
}
