import { didYouMean } from '../core/lib/names/did-you-mean.ts'
import { toMessage } from '../core/lib/process.ts'
import { account } from './cli/commands/account.ts'
import { issuer } from './cli/commands/apps/issuer.ts'
import { webhookEndpoint } from './cli/commands/apps/webhook-endpoint.ts'
import { member } from './cli/commands/apps/member.ts'
import { redirectUri } from './cli/commands/apps/redirect-uri.ts'
import { registration } from './cli/commands/apps/registration.ts'
import { tenant } from './cli/commands/apps/tenant.ts'
import { signerSecret } from './cli/commands/apps/signer-secret.ts'
import { user } from './cli/commands/apps/user.ts'
import { adjust } from './cli/commands/money/adjust.ts'
import { app } from './cli/commands/apps/app.ts'
import { audit } from './cli/commands/audit.ts'
import { archive } from './cli/commands/transfer/archive.ts'
import { collector } from './cli/commands/collector.ts'
import { config } from './cli/commands/run/config.ts'
import { init } from './cli/commands/run/init.ts'
import { createCompletion } from './cli/commands/run/completion.ts'
import { decision } from './cli/commands/decision.ts'
import { exportTickets } from './cli/commands/transfer/export.ts'
import { grant } from './cli/commands/money/grant.ts'
import { holds } from './cli/commands/money/holds.ts'
import { importTickets } from './cli/commands/transfer/import.ts'
import { keys } from './cli/commands/keys.ts'
import { limits } from './cli/commands/limits.ts'
import { logs } from './cli/commands/run/logs.ts'
import { backup } from './cli/commands/backup/backup.ts'
import { restore } from './cli/commands/backup/restore.ts'
import { books } from './cli/commands/transfer/books.ts'
import { migrate } from './cli/commands/migrate.ts'
import { loss } from './cli/commands/loss.ts'
import { core, demo, gateway, sidecar, signerDouble, start } from './programs.ts'
import { billing } from './cli/commands/money/billing.ts'
import { catalog } from './cli/commands/money/catalog.ts'
import { invoice } from './cli/commands/money/invoice.ts'
import { collect } from './cli/commands/money/collect.ts'
import { overage } from './cli/commands/money/overage.ts'
import { plan } from './cli/commands/money/plan.ts'
import { processor } from './cli/commands/money/processor.ts'
import { quota } from './cli/commands/money/quota.ts'
import { quarantine } from './cli/commands/quarantine.ts'
import { rate } from './cli/commands/money/rate.ts'
import { receipt } from './cli/commands/receipt/receipt.ts'
import { rebuild } from './cli/commands/rebuild.ts'
import { outbox } from './cli/commands/outbox.ts'
import { reconcile } from './cli/commands/reconcile.ts'
import { signer } from './cli/commands/signer.ts'
import { status } from './cli/commands/status.ts'
import { subscription } from './cli/commands/money/subscription.ts'
import { testClock } from './cli/commands/money/test-clock.ts'
import { ticket } from './cli/commands/ticket.ts'
import { verify } from './cli/commands/verify.ts'
import { wallet } from './cli/commands/money/wallet.ts'
import { whatif } from './cli/commands/money/whatif.ts'
import type { Command } from './cli/command.ts'
import { UsageError } from './cli/options.ts'
import { version } from './cli/version.ts'
import { command, failure, heading } from './cli/colors.ts'
import { renderHelp } from './cli/help.ts'

/** The commands by topic, as `--help` lists them. */
const groups: Readonly<Record<string, readonly Command[]>> = {
  Run: [
    start,
    init,
    core,
    gateway,
    sidecar,
    collector,
    migrate,
    backup,
    restore,
    config,
    logs,
    demo,
    signerDouble,
    createCompletion(() => commands),
  ],
  'Apps and people': [
    app,
    member,
    redirectUri,
    issuer,
    webhookEndpoint,
    user,
    account,
    tenant,
    registration,
    audit,
  ],
  Money: [
    grant,
    adjust,
    subscription,
    limits,
    collect,
    overage,
    quota,
    plan,
    catalog,
    billing,
    processor,
    wallet,
    invoice,
    holds,
    rate,
    whatif,
    testClock,
  ],
  Signers: [signer, signerSecret, decision, loss],
  Events: [status, quarantine, outbox, reconcile],
  Books: [ticket, receipt, verify, rebuild, exportTickets, importTickets, archive, books],
  Secrets: [keys],
}

/** All commands by name, in the order of `--help`. */
export const commands: Readonly<Record<string, Command>> = Object.fromEntries(
  Object.values(groups).flatMap((members) => members.map((member) => [member.name, member])),
)

const nameColumns = 16

const line = (name: string, text: string): string =>
  `  ${command(name)}${' '.repeat(nameColumns - name.length)} ${text}`

const section = ([title, members]: [string, readonly Command[]]): string =>
  [heading(title), ...members.map(({ name, summary }) => line(name, summary))].join('\n')

const renderOverview = (): string => `tollgate: identity, metering and billing for a remote signer

  ./tollgate <command> [options]     in the folder of a clone; npx tollgate if it is installed

${Object.entries(groups).map(section).join('\n\n')}

${heading('Help')}
${line('help', 'this text; "tollgate help <command>" explains a command, with examples')}
${line('--version', 'the version')}

Commands that call a running core find it by --target HOST:PORT, by CORE_TARGET and CORE_TOKEN_OPERATOR, or in the
data directory of an all-in-one service (TOLLGATE_DATA_DIR, default .tollgate). Those that write need --target, unless
core is the one of that directory. There --app may be omitted: it is the demo app.
--json prints one JSON document.

Exit codes: 0 success, 1 failure or a difference, 2 wrong usage.
`

/**
 * Runs one command and resolves to the exit code: 0 for success, 1 for failure, 2 for wrong usage.
 */
export async function main(argv: readonly string[]): Promise<number> {
  const [name = 'help', ...rest] = argv
  if (name === '--version' || name === 'version') return print(`tollgate ${version()}\n`, 0)
  if (name === 'help' || asksForHelp([name]))
    return rest[0] === undefined ? print(renderOverview(), 0) : run(rest[0], ['--help'])
  return run(name, rest)
}

async function run(name: string, argv: readonly string[]): Promise<number> {
  const match = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (!match) {
    const word = name.slice(0, 40)
    const hint = didYouMean(word, [...Object.keys(commands), 'help', 'version'])
    return fail(`there is no command "${word}"${hint}; see ./tollgate --help`, 2)
  }
  if (asksForHelp(argv)) return print(renderHelp(match.help), 0)
  try {
    return await match.run(argv)
  } catch (error) {
    const isUsage = error instanceof UsageError
    const hint = isUsage ? `; see ./tollgate ${name} --help` : ''
    return fail(`${toMessage(error)}${hint}`, isUsage ? 2 : 1)
  }
}

const asksForHelp = (argv: readonly string[]): boolean =>
  argv.includes('--help') || argv.includes('-h')

function print(text: string, code: number): number {
  process.stdout.write(text)
  return code
}

function fail(message: string, code: number): number {
  process.stderr.write(`${failure('tollgate:')} ${message}\n`)
  return code
}
